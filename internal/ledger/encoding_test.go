package ledger

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Any bytes are either refused or a record that can be written and read again without a change.
func FuzzDecodeRecord(f *testing.F) {
	const id = "sb-abcdefghijkl"
	valid := `{"schema":1,"id":"` + id + `","name":"web","driver":"fake","state":"ready","handle":"h","spec":{"a":1},` +
		`"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","process":{"pid":1},"future":[{}]}`
	f.Add([]byte(valid))
	f.Add([]byte(valid[:90]))
	f.Add([]byte(strings.Replace(valid, `"handle":"h"`, `"handle_base64":"/w=="`, 1)))
	f.Add([]byte(strings.Replace(valid, `"future"`, `"LABELS"`, 1)))
	f.Add([]byte("null"))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := decodeRecord(id, data)
		if err != nil {
			return
		}
		written, err := encodeRecord(first, data)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(written, []byte("\n")) != 1 {
			t.Errorf("not one line: %q", written)
		}
		second, err := decodeRecord(id, written)
		if err != nil {
			t.Fatalf("%v in what was written: %s", err, written)
		}
		first.Spec, second.Spec = compact(first.Spec), compact(second.Spec)
		first.Reported, second.Reported = compact(first.Reported), compact(second.Reported)
		if a, b := asJSON(t, first), asJSON(t, second); a != b || !bytes.Equal(first.Handle, second.Handle) {
			t.Errorf("read\n%s\nwrote and read\n%s", a, b)
		}
		again, err := encodeRecord(second, written)
		if err != nil || !reflect.DeepEqual(again, written) {
			t.Errorf("writing twice gives\n%s\n%s\n%v", written, again, err)
		}
	})
}

func compact(raw json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil || out.Len() == 0 {
		return nil
	}
	return out.Bytes()
}

func asJSON(t *testing.T, r Record) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func FuzzName(f *testing.F) {
	for _, name := range []string{"web", "Web.1", "a_b-c", "", "..", "-a", "a/b", "a\x00", "%41", "sb-abcdefghijkl", strings.Repeat("a", 64)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidateName(name) != nil {
			return
		}
		file := escapeName(name)
		if back, ok := unescapeName(file); !ok || back != name {
			t.Errorf("%q became %q became %q", name, file, back)
		}
		if strings.ContainsAny(file, `/\`) || strings.HasPrefix(file, ".") || strings.ToLower(file) != file {
			t.Errorf("%q is no good as a file name for %q", file, name)
		}
		if key, ok := tempKey("." + file + indexExt + "123"); !ok || key != nameKey(name) {
			t.Errorf("the temporary file of %q belongs to %q", name, key)
		}
	})
}

func TestValidateName(t *testing.T) {
	for _, name := range []string{"a", "9", "Web.1_x-y", strings.Repeat("a", 63), "sb-short", "sb-ABCDEFGHIJKL"} {
		if err := ValidateName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "-a", "_a", "a b", "a/b", `a\b`, "a:b", "ä", "a\n", strings.Repeat("a", 64), "sb-abcdefghijkl"} {
		if ValidateName(name) == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if !IsID(id) || seen[id] {
			t.Fatalf("bad or repeated id %q", id)
		}
		seen[id] = true
	}
	for _, id := range []string{"", "sb-", "sb-ABCDEFGHIJKL", "sb-abcdefghijk1", "sb-abcdefghijklm", "xx-abcdefghijkl", "sb-../../../ab"} {
		if IsID(id) {
			t.Errorf("%q is not an id", id)
		}
	}
}
