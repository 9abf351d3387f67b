package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Select makes Finish write one value of the JSON object instead of the object, and the
// failure to stderr. The path is dotted, with numbers for the entries of lists.
func (p *Printer) Select(path string) {
	p.format = JSON
	p.field = path
}

// writeField writes the selected value as it is: a string without quotes, an object or
// a list as JSON on one line, and an empty line for what is absent, so that a reader of
// the last line never takes another line for the value. A failure's absent value is
// nothing.
func (p *Printer) writeField(object []byte, failure *Error) error {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var root any
	if err := decoder.Decode(&root); err != nil {
		return err
	}
	value, found := lookUp(root, p.field)
	var err error
	if found || failure == nil {
		err = p.writeRaw(value)
	}
	if failure != nil {
		p.Failure(failure)
	}
	return err
}

func (p *Printer) writeRaw(value any) error {
	var err error
	switch value := value.(type) {
	case nil:
		_, err = fmt.Fprintln(p.out)
	case map[string]any, []any:
		encoder := json.NewEncoder(p.out)
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(value)
	default:
		_, err = fmt.Fprintln(p.out, value)
	}
	return err
}

// lookUp follows a dotted path. A key that holds dots itself, as labels may, is found
// when it is the rest of the path.
func lookUp(value any, path string) (any, bool) {
	if path == "" {
		return value, value != nil
	}
	name, rest, _ := strings.Cut(path, ".")
	switch value := value.(type) {
	case map[string]any:
		if whole, found := value[path]; found {
			return whole, true
		}
		return lookUp(value[name], rest)
	case []any:
		index, err := strconv.Atoi(name)
		if err != nil || index < 0 || index >= len(value) {
			return nil, false
		}
		return lookUp(value[index], rest)
	}
	return nil, false
}
