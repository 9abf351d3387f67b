// Package examples_test runs the examples as their readers would.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

const module = "github.com/sandboxctl/sandboxctl"

func TestExamples(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the examples use the local driver, which runs on Linux only")
	}
	dir, bin := build(t)
	for name, example := range map[string]func(*testing.T, []string){
		"agent.py":             func(t *testing.T, env []string) { testAgent(t, env, "python3", "agent.py") },
		"agent.mjs":            func(t *testing.T, env []string) { testAgent(t, env, "node", "agent.mjs") },
		"agent.py that fails":  func(t *testing.T, env []string) { testFailingAgent(t, env, "python3", "agent.py") },
		"agent.mjs that fails": func(t *testing.T, env []string) { testFailingAgent(t, env, "node", "agent.mjs") },
		"demo.sh":              testDemo,
		"smoke.sh":             testSmokeScript,
		"github-actions.yml":   testGitHubActions,
		"gitlab-ci.yml":        testGitLabCI,
	} {
		t.Run(name, func(t *testing.T) {
			state := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SANDBOXCTL_STATE_DIR="+state, "HOME="+dir)
			t.Cleanup(func() {
				if left := run(t, env, "", "sandboxctl", "ls", "--quiet"); left != "" {
					t.Errorf("the example left sandboxes behind: %q", left)
					run(t, env, "", "sandboxctl", "rm", "--force", "--all")
				}
			})
			example(t, env)
		})
	}
}

// build builds sandboxctl with the local driver into a folder of a short-lived one.
func build(t *testing.T) (dir, bin string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin = filepath.Join(dir, "bin")
	// Drivers that others could replace are refused.
	for _, folder := range []string{dir, bin} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := plugintest.Build(bin, module+"/cmd/sandboxctl", module+"/drivers/local/cmd/..."); err != nil {
		t.Fatal(err)
	}
	return dir, bin
}

// run runs a program, found on the PATH of env, and returns its output.
func run(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	command := exec.Command("/usr/bin/env", append([]string{name}, args...)...)
	command.Env, command.Dir = env, dir
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func needs(t *testing.T, interpreter string) {
	t.Helper()
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Skipf("there is NO %s here, so its example was NOT tested", interpreter)
	}
}

func testAgent(t *testing.T, env []string, interpreter, program string) {
	needs(t, interpreter)
	out := run(t, env, "agent", interpreter, program, "Sum the numbers from 1 to 100.", "python3", "scripted_model.py")
	if out != "The sum is 5050.\n" {
		t.Errorf("the loop ended with %q", out)
	}
}

// testFailingAgent gives the loop a model that fails; the sandbox has to go all the same.
func testFailingAgent(t *testing.T, env []string, interpreter, program string) {
	needs(t, interpreter)
	command := exec.Command(interpreter, "agent/"+program, "fail", "false")
	command.Env = env
	if out, err := command.CombinedOutput(); err == nil {
		t.Errorf("the loop succeeds: %s", out)
	}
}

// testDemo takes the tour with the sandboxctl that is on the PATH.
func testDemo(t *testing.T, env []string) {
	needs(t, "python3")
	run(t, env, "..", "examples/demo.sh")
}

func testSmokeScript(t *testing.T, env []string) {
	if out := run(t, env, "..", "examples/ci/smoke.sh"); !strings.HasSuffix(out, "passed.\n") {
		t.Errorf("the script ended with %q", out)
	}
}

// testGitHubActions runs the workflow's steps but for the installation, after a job
// that died and left a sandbox.
func testGitHubActions(t *testing.T, env []string) {
	var workflow struct {
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct{ ID, If, Name, Run, Uses string }
		}
	}
	readYAML(t, "ci/github-actions.yml", &workflow)
	job := workflow.Jobs["smoke"]
	if job.Env["SANDBOXCTL_STATE_DIR"] == "" || job.Env["CI_RUN"] != "${{ github.run_id }}" {
		t.Fatalf("the job's variables are %q", job.Env)
	}
	env = append(env, "CI_RUN=17")
	run(t, env, "", "sandboxctl", "create", "--name", "left-behind", "--label", "ci-run=17")
	last := job.Steps[len(job.Steps)-1]
	if last.If != "always()" || !strings.Contains(last.Run, "sandboxctl gc") {
		t.Errorf("the last step is %+v; it has to clean up always", last)
	}
	ran := 0
	for _, step := range job.Steps {
		if step.Run == "" || step.ID == "install" {
			continue
		}
		// The shell that GitHub uses for a step without one.
		run(t, env, "..", "bash", "-e", "-c", step.Run)
		ran++
	}
	if ran != 3 {
		t.Errorf("%d steps were run, not 3", ran)
	}
}

// testGitLabCI runs the job's script and after_script, after a job that died and left a
// sandbox.
func testGitLabCI(t *testing.T, env []string) {
	var pipeline map[string]struct {
		Variables   map[string]string
		Script      []string
		AfterScript []string `yaml:"after_script"`
	}
	readYAML(t, "ci/gitlab-ci.yml", &pipeline)
	job := pipeline["smoke"]
	if job.Variables["SANDBOXCTL_STATE_DIR"] == "" || job.Variables["CI_RUN"] != "$CI_PIPELINE_ID" {
		t.Fatalf("the job's variables are %q", job.Variables)
	}
	env = append(env, "CI_RUN=18")
	run(t, env, "", "sandboxctl", "create", "--name", "left-behind", "--label", "ci-run=18")
	if len(job.Script) == 0 || len(job.AfterScript) == 0 {
		t.Fatalf("the job is %+v", job)
	}
	run(t, env, "..", "bash", "-e", "-c", strings.Join(job.Script, "\n"))
	run(t, env, "..", "bash", "-e", "-c", strings.Join(job.AfterScript, "\n"))
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
