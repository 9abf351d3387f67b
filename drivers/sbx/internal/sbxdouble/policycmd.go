package sbxdouble

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy"}
	cmd.AddCommand(a.policyInit(), a.policyRule("allow"), a.policyRule("deny"), a.policyRemove(), a.policyList(), a.policyCheck())
	return cmd
}

// changePolicy edits the stored policy under the lock.
func (a *app) changePolicy(edit func(*policyState) error) error {
	return a.store.locked(func() error {
		policy, err := a.store.policy(a.config)
		if err != nil {
			return err
		}
		if err := edit(policy); err != nil {
			return err
		}
		return a.store.savePolicy(policy)
	})
}

func (a *app) policyInit() *cobra.Command {
	return &cobra.Command{Use: "init PRESET", Aliases: []string{"set-default"}, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		if !slices.Contains([]string{PresetAllowAll, PresetBalanced, PresetDenyAll}, args[0]) {
			return fail("invalid preset %q", args[0])
		}
		return a.changePolicy(func(p *policyState) error {
			if p.Preset != "" && a.config.atLeast(Gen039) {
				return fail(`global network policy is already initialized; use "sbx policy reset" first to change it`)
			}
			p.init(args[0])
			return nil
		})
	}}
}

func (a *app) policyRule(decision string) *cobra.Command {
	cmd := &cobra.Command{Use: decision}
	network := &cobra.Command{Use: "network [flags] RESOURCES", Args: cobra.ExactArgs(1)}
	scope := network.Flags().String("sandbox", "", "sandbox")
	network.RunE = func(_ *cobra.Command, args []string) error {
		return a.changePolicy(func(p *policyState) error {
			if *scope != "" && !a.store.exists(*scope) {
				return fail("sandbox %q not found", *scope)
			}
			resources := strings.Split(args[0], ",")
			for _, resource := range resources {
				if resource == "" {
					return fail("empty resource in %q", args[0])
				}
				if p.has(*scope, decision, resource) {
					return fail("add network rule: duplicate rule: %s is already covered", resource)
				}
			}
			for _, resource := range resources {
				r := rule{ID: "dropped"}
				if !a.config.DropRules {
					r = p.add(*scope, decision, resource, "local")
				}
				fmt.Printf("Rule added to policy local (scope: %s): %s (%s)\n", scopeText(*scope), r.ID, resource)
			}
			return nil
		})
	}
	cmd.AddCommand(network)
	return cmd
}

func scopeText(sandbox string) string {
	if sandbox == "" {
		return "global"
	}
	return "sandbox:" + sandbox
}

func (a *app) policyRemove() *cobra.Command {
	cmd := &cobra.Command{Use: "rm"}
	network := &cobra.Command{Use: "network", Args: cobra.NoArgs}
	scope := network.Flags().String("sandbox", "", "sandbox")
	resource := network.Flags().String("resource", "", "resources")
	id := network.Flags().String("id", "", "rule id")
	network.RunE = func(*cobra.Command, []string) error {
		if *id != "" {
			return fail("remove network rule: remove-id: rule %q not found", *id)
		}
		return a.changePolicy(func(p *policyState) error {
			scoped := func(r rule) bool { return r.Sandbox == *scope && r.Origin == "local" }
			if *scope != "" && !slices.ContainsFunc(p.Rules, scoped) {
				return fail("remove network rule: no scoped policy found for sandbox %q", *scope)
			}
			wanted := strings.Split(*resource, ",")
			for _, want := range wanted {
				if !slices.ContainsFunc(p.Rules, func(r rule) bool { return scoped(r) && r.Resource == want }) {
					return fail("remove network rule: remove-resource: rule not found")
				}
			}
			p.Rules = slices.DeleteFunc(p.Rules, func(r rule) bool { return scoped(r) && slices.Contains(wanted, r.Resource) })
			fmt.Printf("Rule removed from policy local: resources=%s\n", *resource)
			return nil
		})
	}
	cmd.AddCommand(network)
	return cmd
}

func (a *app) policyList() *cobra.Command {
	cmd := &cobra.Command{Use: "ls [SANDBOX]", Args: cobra.MaximumNArgs(1)}
	asJSON := cmd.Flags().Bool("json", false, "JSON output")
	cmd.Flags().String("type", "all", "all, network or filesystem")
	source := cmd.Flags().String("source", "", "local, org or kit")
	decision := cmd.Flags().String("decision", "", "allow or deny")
	cmd.Flags().Bool("wide", false, "more columns")
	inactive := cmd.Flags().Bool("include-inactive", false, "rules without effect too")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		policy, err := a.store.policy(a.config)
		if err != nil {
			return err
		}
		if policy.Preset == "" && a.config.unknowns().PolicyLsNeedsInit {
			return fail("global network policy has not been initialized")
		}
		rows := []map[string]any{}
		for _, r := range policy.Rules {
			// A sandbox that does not exist is not an error: the other rules are shown.
			if r.Sandbox != "" && (len(args) == 0 || r.Sandbox != args[0]) {
				continue
			}
			if *source != "" && r.Origin != *source || *decision != "" && r.Decision != *decision || !r.active(a.config) && !*inactive {
				continue
			}
			status := "active"
			if !r.active(a.config) {
				status = "inactive"
			}
			applies, scope := "all", scopeText(r.Sandbox)
			if r.Sandbox != "" {
				if a.config.unknowns().ScopesByID {
					scope = scopeText(uuid.NewSHA1(uuid.NameSpaceOID, []byte(r.Sandbox)).String())
				}
				applies = scope
			}
			rows = append(rows, map[string]any{
				"id": r.ID, "name": r.Resource, "policy_id": "local", "scope": scope, "applies_to": applies, "resource_type": "network",
				"decision": r.Decision, "resources": []string{r.Resource}, "origin": r.Origin, "status": status, "editable": r.Origin == "local",
			})
		}
		if *asJSON {
			return json.NewEncoder(os.Stdout).Encode(map[string]any{"rules": rows})
		}
		fmt.Println("POLICY  SOURCE  APPLIES TO  SUMMARY")
		fmt.Printf("local   local   all         %d rules\n", len(rows))
		return nil
	}
	return cmd
}

func (a *app) policyCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check"}
	network := &cobra.Command{Use: "network TARGET", Args: cobra.ExactArgs(1)}
	scope := network.Flags().String("sandbox", "", "sandbox")
	asJSON := network.Flags().Bool("json", false, "JSON output")
	network.Flags().Bool("verbose", false, "more")
	network.RunE = func(_ *cobra.Command, args []string) error {
		if *scope != "" && !a.store.exists(*scope) {
			return fail("sandbox %q not found", *scope)
		}
		policy, err := a.store.policy(a.config)
		if err != nil {
			return err
		}
		host, port := args[0], 443
		if h, p, err := net.SplitHostPort(args[0]); err == nil {
			host = h
			port, _ = strconv.Atoi(p)
		}
		allowed, by := policy.decide(a.config, *scope, host, port)
		verdict := map[bool]string{true: "Allowed", false: "Denied"}[allowed]
		if *asJSON {
			answer := map[string]any{"allowed": allowed, "action": "net:connect:tcp", "context": scopeText(*scope), "resource_value": fmt.Sprintf("%s:%d", host, port), "target": args[0], "type": "network"}
			if by != nil {
				answer["rule"], answer["origin"] = by.ID, by.Origin
			} else {
				answer["deny_kind"], answer["reason"] = "implicit", "No matching allow rule (default deny)"
			}
			if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
				return err
			}
		} else {
			fmt.Printf("%s: %s\n", verdict, host)
		}
		if code := a.config.unknowns().CheckDeniedExit; !allowed && code != 0 {
			return &exitError{code: code}
		}
		return nil
	}
	cmd.AddCommand(network)
	return cmd
}
