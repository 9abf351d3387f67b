package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	schemaVersion = 1
	recordExt     = ".json"
	// maxRecord bounds what is read into memory for one record; a real one has about 1 KiB.
	maxRecord = 1 << 20
	// maxGrown bounds what a live record may grow to. What is written has to be read
	// again, and the end of a sandbox adds to its record.
	maxGrown = maxRecord / 2
)

// recordFile is the JSON of one record. The handle is written as text where it is text, because somebody who cleans up by
// hand after an accident reads it with cat.
type recordFile struct {
	*Record
	Handle       string `json:"handle,omitempty"`
	HandleBase64 []byte `json:"handle_base64,omitempty"`
}

// encodeRecord renders r as one line. Members of previous, the file's last content, that this version does not know are
// kept, so that an older sandboxctl does not destroy what a newer one wrote.
func encodeRecord(r Record, previous []byte) ([]byte, error) {
	file := recordFile{Record: &r}
	if utf8.Valid(r.Handle) {
		file.Handle = string(r.Handle)
	} else {
		file.HandleBase64 = r.Handle
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	// Escaping would change the bytes of Spec, which callers compare.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("cannot encode the record of %s: %w", r.ID, err)
	}
	unknown := unknownMembers(previous)
	if len(unknown) == 0 {
		return out.Bytes(), nil
	}
	out.Truncate(out.Len() - len("}\n"))
	for _, key := range slices.Sorted(maps.Keys(unknown)) {
		quoted, err := json.Marshal(key)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the record of %s: %w", r.ID, err)
		}
		fmt.Fprintf(&out, ",%s:%s", quoted, unknown[key])
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

// checkGrown refuses a record that could not be read again or not be ended.
func checkGrown(r Record, data []byte) error {
	if r.State != StateGone && len(data) > maxGrown {
		return fmt.Errorf("cannot record the sandbox %s: its spec, labels and reference take %d bytes, and at most %d are kept", r.ID, len(data), maxGrown)
	}
	return nil
}

func unknownMembers(data []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[recordFile]()) {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		// Decoding matches names without regard to case, so a member spelled otherwise is known too.
		maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, tag) })
	}
	return members
}

// decodeRecord reads the file of the sandbox id and checks what the rest of the package relies on. Files may have been cut
// short by a bad disk or edited by hand.
func decodeRecord(id string, data []byte) (Record, error) {
	var r Record
	file := recordFile{Record: &r}
	if len(bytes.TrimSpace(data)) == 0 {
		return Record{}, errors.New("it is empty")
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Record{}, fmt.Errorf("it is not a JSON record: %w", err)
	}
	r.Handle = file.HandleBase64
	if file.Handle != "" {
		r.Handle = []byte(file.Handle)
	}
	return r, checkRecord(id, r)
}

func checkRecord(id string, r Record) error {
	switch {
	case r.Schema > schemaVersion:
		return fmt.Errorf("a newer sandboxctl wrote it (schema %d, this one knows %d); upgrade sandboxctl", r.Schema, schemaVersion)
	case r.Schema < 1:
		return errors.New("it has no schema version")
	case r.ID != id:
		return fmt.Errorf("its id is %q and not that of the file", r.ID)
	case r.Name != r.ID && ValidateName(r.Name) != nil:
		return fmt.Errorf("its name %.80q is not valid", r.Name)
	case r.Driver == "":
		return errors.New("it names no driver")
	case !slices.Contains([]State{StateIntent, StateCreated, StateReady, StateGone}, r.State):
		return fmt.Errorf("its state %.80q is unknown", string(r.State))
	case len(r.Handle) == 0 && (r.State == StateCreated || r.State == StateReady):
		return fmt.Errorf("it has no handle in state %s", r.State)
	case r.CreatedAt.IsZero():
		return errors.New("it has no creation time")
	}
	return nil
}
