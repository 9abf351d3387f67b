package sbx

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNoJSON = errors.New("the answer holds no JSON")

// firstJSON decodes the first JSON object or array that opens a line. Before it may
// stand the daemon's start header (docker/sbx-releases#201), after it the box that
// tells of an update.
func firstJSON(data []byte, into any) error {
	failure := errNoJSON
	for len(data) > 0 {
		line := bytes.TrimLeft(data, " \t\r")
		if len(line) > 0 && (line[0] == '{' || line[0] == '[') {
			decoder := json.NewDecoder(bytes.NewReader(line))
			if err := decoder.Decode(into); err == nil {
				return nil
			} else if errors.Is(failure, errNoJSON) {
				failure = err
			}
		}
		_, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			break
		}
		data = rest
	}
	return failure
}
