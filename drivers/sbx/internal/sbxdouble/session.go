package sbxdouble

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Args: cobra.NoArgs}
	var asJSON bool
	if a.config.atLeast(Gen042) {
		cmd.Flags().BoolVar(&asJSON, "json", false, "JSON output")
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		version := a.config.Version
		if version == "" {
			version = a.config.Generation + ".0"
		}
		const commit = "2852d3aaf659177ffb8fd9d06298ef64df6fadf7"
		switch {
		case asJSON:
			fmt.Printf("{\"client\":{\"version\":\"v%s\",\"commit\":%q}}\n", version, commit)
		case a.config.atLeast(Gen039):
			fmt.Printf("Client Version:  v%s %s\nServer Version:  v%s %s\n", version, commit, version, commit)
		default:
			fmt.Printf("sbx version: v%s %s\n", version, commit)
		}
		return nil
	}
	return cmd
}

func (a *app) loginCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "login", Args: cobra.NoArgs}
	user := cmd.Flags().String("username", "", "user name")
	fromStdin := cmd.Flags().Bool("password-stdin", false, "read the token from stdin")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *user == "" || !*fromStdin {
			return a.signIn(cmd)
		}
		return fail("auth login failed: docker hub token is invalid")
	}
	return cmd
}

func (a *app) logoutCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "logout", Args: cobra.NoArgs}
	cmd.Flags().Bool("yes", false, "do not ask")
	cmd.RunE = func(*cobra.Command, []string) error {
		boxes, err := a.store.list()
		if err != nil {
			return err
		}
		for _, box := range boxes {
			a.halt(box.Name)
		}
		return nil
	}
	return cmd
}

func (a *app) daemonCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "daemon"}
	start := &cobra.Command{Use: "start", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	start.Flags().BoolP("detach", "d", false, "in the background")
	start.Flags().String("policy", "", "preset")
	status := &cobra.Command{Use: "status", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		fmt.Print("Status: running\nSocket: /run/sandboxd.sock\nLogs: /run/daemon.log\n")
		return nil
	}}
	cmd.AddCommand(start, status)
	return cmd
}

func (a *app) diagnoseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "diagnose", Args: cobra.NoArgs}
	format := cmd.Flags().StringP("output", "o", "", "json or github-issue")
	cmd.RunE = func(*cobra.Command, []string) error {
		type check struct {
			Name    string `json:"name"`
			Status  string `json:"status"`
			Message string `json:"message"`
			Hint    string `json:"hint,omitempty"`
		}
		checks := []check{{Name: "Authentication", Status: "pass", Message: "authenticated"}, {Name: "Virtualization", Status: "pass", Message: "supported"}}
		failed := 0
		if a.config.LoggedOut {
			checks[0] = check{Name: "Authentication", Status: "fail", Message: "not authenticated", Hint: "run sbx login"}
			failed++
		}
		if len(a.config.CreateFaults) > 0 && a.config.CreateFaults[0] == CreateNoKVM {
			checks[1] = check{Name: "Virtualization", Status: "fail", Message: "KVM error: Permission denied (os error 13)", Hint: "add yourself to the kvm group"}
			failed++
		}
		if *format == "json" {
			text, err := json.Marshal(map[string]any{"version": "1.0", "checks": checks, "summary": map[string]int{"pass": len(checks) - failed, "warn": 0, "fail": failed, "skip": 0}})
			if err != nil {
				return err
			}
			fmt.Println(string(text))
		} else {
			for _, c := range checks {
				fmt.Printf("%s: %s — %s\n", c.Status, c.Name, c.Message)
			}
		}
		if failed > 0 {
			return &exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// self starts this program again with other arguments.
func self(args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.Command(path, args...), nil
}
