package cli

import (
	"reflect"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

// ResultTypes lists what each kind of command answers with in JSON, for the schemas in
// docs/schema. ls has two results, of which one answer holds one.
func ResultTypes() map[string][]reflect.Type {
	types := map[string][]reflect.Type{}
	for kind, results := range map[string][]output.Result{
		"create":      {&createResult{}},
		"exec":        {&execResult{}},
		"run":         {&execResult{}},
		"shell":       {&execResult{}},
		"cp":          {&cpResult{}},
		"ls":          {&lsResult{}, &lsPathResult{}},
		"rm":          {&rmResult{}},
		"inspect":     {&inspectResult{}},
		"renew":       {&renewResult{}},
		"gc":          {&gcResult{}},
		"image ls":    {&imageLsResult{}},
		"image pull":  {&imagePullResult{}},
		"image rm":    {&imageRmResult{}},
		"image prune": {&imagePruneResult{}},
		"driver ls":   {&driverLsResult{}},
		"driver info": {&driverInfoResult{}},
		"driver test": {&driverTestResult{}},
		"doctor":      {&doctorResult{}},
		"version":     {&versionResult{}},
		"help":        {&helpResult{}},
		"completion":  {&completionResult{}},
	} {
		for _, result := range results {
			types[kind] = append(types[kind], reflect.TypeOf(result).Elem())
		}
	}
	return types
}
