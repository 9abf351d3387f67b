package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Scalars are the settings that a file, the environment and flags share.
type Scalars struct {
	// Driver is what create and run use when --driver is not given.
	Driver string `yaml:"driver"`
	// Output is text or json.
	Output string `yaml:"output"`
	// Color is auto, always or never.
	Color string `yaml:"color"`
	// TTL is the lease of a new sandbox; "0" means none.
	TTL string `yaml:"ttl"`
}

// file is the configuration file. Maps whose keys are the user's own are read here and
// not by viper, which lower-cases keys and splits them at dots.
type file struct {
	Scalars  `yaml:",inline"`
	Profiles map[string]Scalars `yaml:"profiles"`
	Drivers  map[string]Driver  `yaml:"drivers"`
	// DevOverrides name driver binaries to use instead of the installed ones.
	DevOverrides map[string]string `yaml:"dev_overrides"`
}

// Driver is a driver's section of the file.
type Driver struct {
	// Path is the driver's binary when it is not in one of the usual places.
	Path string
	// Env maps a variable that the driver wants to the variable that holds it here.
	Env map[string]string
	// Settings is everything else, as a JSON object for the driver.
	Settings json.RawMessage
}

// UnmarshalYAML keeps a driver's own settings apart from sandboxctl's.
func (d *Driver) UnmarshalYAML(node *yaml.Node) error {
	var all map[string]any
	if err := node.Decode(&all); err != nil {
		return err
	}
	var ours struct {
		Path string            `yaml:"path"`
		Env  map[string]string `yaml:"env"`
	}
	if err := node.Decode(&ours); err != nil {
		return err
	}
	delete(all, "path")
	delete(all, "env")
	settings, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("line %d: its settings cannot be written as JSON: %w", node.Line, err)
	}
	*d = Driver{Path: ours.Path, Env: ours.Env}
	if len(all) > 0 {
		d.Settings = settings
	}
	return nil
}

// readFile reads a configuration. A file that does not exist is an empty one, unless
// the user named it.
func readFile(path string, named bool) (*file, error) {
	read := &file{}
	if path == "" {
		return read, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return read, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(read); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the configuration %s cannot be read: %s", path, describeYAML(err))
	}
	return read, nil
}

// describeYAML makes one sentence of yaml's list of complaints.
func describeYAML(err error) string {
	var typeError *yaml.TypeError
	if !errors.As(err, &typeError) {
		return strings.TrimPrefix(err.Error(), "yaml: ")
	}
	complaints := slices.Clone(typeError.Errors)
	for i, complaint := range complaints {
		before, _, found := strings.Cut(complaint, " not found in type")
		if found {
			complaints[i] = strings.Replace(before, "field ", "unknown key ", 1)
		}
	}
	return strings.Join(complaints, "; ")
}

// profile returns the file's scalars with a profile's laid over them.
func (f *file) profile(name string) (Scalars, error) {
	if name == "" {
		return f.Scalars, nil
	}
	over, ok := f.Profiles[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(f.Profiles)), ", ")
		if known == "" {
			known = "none"
		}
		return Scalars{}, fmt.Errorf("there is no profile %q in the configuration; it has: %s", name, known)
	}
	scalars := f.Scalars
	for _, field := range []struct {
		to   *string
		from string
	}{{&scalars.Driver, over.Driver}, {&scalars.Output, over.Output}, {&scalars.Color, over.Color}, {&scalars.TTL, over.TTL}} {
		if field.from != "" {
			*field.to = field.from
		}
	}
	return scalars, nil
}
