package sbxdouble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) lsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Args: cobra.NoArgs}
	asJSON := cmd.Flags().Bool("json", false, "JSON output")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "names only")
	cmd.RunE = func(*cobra.Command, []string) error {
		boxes, err := a.store.list()
		if err != nil {
			return err
		}
		switch {
		case *asJSON:
			return a.listJSON(boxes)
		case *quiet:
			for _, box := range boxes {
				fmt.Println(box.Name)
			}
		case len(boxes) == 0:
			fmt.Println("No sandboxes found.\nLaunch one: sbx run claude")
		default:
			header := "SANDBOX"
			if a.config.Generation == Gen035 {
				header = "NAME"
			}
			fmt.Printf("%-40s %-8s %-9s %-6s %s\n", header, "AGENT", "STATUS", "PORTS", "WORKSPACE")
			for _, box := range boxes {
				fmt.Printf("%-40s %-8s %-9s %-6s %s\n", box.Name, box.Agent, a.status(box), "", strings.Join(box.Workspaces, ", "))
			}
		}
		return nil
	}
	return cmd
}

func (a *app) status(box *sandbox) string {
	if a.running(box.Name) {
		return "running"
	}
	return "stopped"
}

func (a *app) listJSON(boxes []*sandbox) error {
	rows := []map[string]any{}
	for _, box := range boxes {
		row := map[string]any{"name": box.Name, "agent": box.Agent, "status": a.status(box)}
		if row["status"] == "running" {
			row["socket_path"] = "/run/sandboxd/" + box.Name + "/docker.sock"
		}
		if len(box.Workspaces) > 0 {
			row["workspaces"] = box.Workspaces
		}
		if a.config.atLeast(Gen045) {
			row["last_used"] = "2026-09-22T10:00:00Z"
			row["id"] = "sbx-" + box.Name
		}
		rows = append(rows, row)
	}
	var list any = rows
	if len(rows) == 0 && a.config.unknowns().NullWhenEmpty {
		list = nil
	}
	text, err := json.MarshalIndent(map[string]any{"sandboxes": list}, "", "  ")
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		var flat bytes.Buffer
		if err := json.Compact(&flat, text); err != nil {
			return err
		}
		text = flat.Bytes()
	}
	fmt.Println(string(text))
	return nil
}

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{Use: "stop SANDBOX [SANDBOX...]", Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, names []string) error {
		for _, name := range names {
			if !a.store.exists(name) {
				return fail("sandbox '%s' not found", name)
			}
			a.halt(name)
		}
		return nil
	}}
}

func (a *app) rmCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rm [SANDBOX...]"}
	all := cmd.Flags().Bool("all", false, "every sandbox")
	force := cmd.Flags().BoolP("force", "f", false, "do not ask")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		if *all {
			boxes, err := a.store.list()
			if err != nil {
				return err
			}
			for _, box := range boxes {
				names = append(names, box.Name)
			}
		} else if len(names) == 0 {
			return fail("requires a sandbox name or --all")
		}
		if !*force {
			return a.confirmRemoval(names)
		}
		if a.config.RmFails {
			return fail("request failed: 500 Internal Server Error: remove sandbox: device or resource busy")
		}
		return a.removeAll(names)
	}
	return cmd
}

func (a *app) confirmRemoval(names []string) error {
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || !hasTerminal() {
		return fail("refusing to remove without confirmation: stdin is not a terminal; use --force")
	}
	fmt.Printf("Remove sandbox '%s'? This cannot be undone. (y/N): ", names[0])
	var answer string
	_, _ = fmt.Scanln(&answer)
	if answer != "y" && answer != "Y" {
		return &exitError{code: 1}
	}
	return a.removeAll(names)
}

func (a *app) removeAll(names []string) error {
	missing := false
	for _, name := range names {
		if !a.store.exists(name) {
			fmt.Fprintf(os.Stderr, "ERROR: sandbox '%s' not found\n", name)
			missing = true
			continue
		}
		if err := a.remove(name); err != nil {
			return err
		}
		fmt.Printf("Sandbox '%s' removed\n", name)
	}
	if code := a.config.unknowns().RmMissingExit; missing && code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// remove stops a sandbox and deletes all of it but the host's workspace.
func (a *app) remove(name string) error {
	a.halt(name)
	return a.store.locked(func() error {
		policy, err := a.store.policy(a.config)
		if err != nil {
			return err
		}
		policy.dropScoped(name, false)
		if err := a.store.savePolicy(policy); err != nil {
			return err
		}
		return os.RemoveAll(a.store.sandboxDir(name))
	})
}
