package spec

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// ParseEnv reads K=V and K arguments in order; later ones win. A bare K takes its value
// from the caller's environment, so that secrets need not be on a command line, and is
// an error when it is not set there.
func ParseEnv(arguments []string, lookup func(string) (string, bool)) (map[string]string, error) {
	env := map[string]string{}
	for _, argument := range arguments {
		name, value, given := strings.Cut(argument, "=")
		if err := checkEnvName(name); err != nil {
			return nil, err
		}
		if !given {
			var set bool
			if value, set = lookup(name); !set {
				return nil, fmt.Errorf("--env %s: the variable is not set here; export it or write %s=VALUE", name, name)
			}
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("--env %s: the value holds a NUL byte, which no program can receive", name)
		}
		env[name] = value
	}
	return env, nil
}

// ReadEnvFile reads lines of K=V or K. Blank lines and lines that start with # are
// skipped; a value is everything after the first "=", quotes included.
func ReadEnvFile(r io.Reader, name string) ([]string, error) {
	var arguments []string
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for number := 1; scanner.Scan(); number++ {
		line := strings.TrimSuffix(scanner.Text(), "\r")
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		if err := checkEnvName(strings.SplitN(line, "=", 2)[0]); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
		}
		arguments = append(arguments, line)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return arguments, nil
}

// CheckText says whether values can be told to every backend, which text can and other
// bytes cannot. Arguments and values of variables are exempt.
func CheckText(values map[string]string) error {
	for what, value := range values {
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%s %q is not valid UTF-8 text", what, value)
		}
	}
	return nil
}

func checkEnvName(name string) error {
	if name == "" || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00 \t\n") {
		return fmt.Errorf("%q is not a name of an environment variable", name)
	}
	return nil
}
