package plugin

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fill sets every field to something that is not its zero value, so that a field which
// the conversion forgets is seen.
func fill(t *testing.T, value reflect.Value) {
	t.Helper()
	switch value.Interface().(type) {
	case time.Time:
		value.Set(reflect.ValueOf(time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC)))
		return
	case time.Duration:
		value.SetInt(int64(90 * time.Second))
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			fill(t, value.Field(i))
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(t, value.Elem())
	case reflect.String:
		value.SetString(known(value.Type()))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int64:
		value.SetInt(7)
	case reflect.Uint32, reflect.Uint64:
		value.SetUint(7)
	case reflect.Float64:
		value.SetFloat(1.5)
	case reflect.Map:
		value.Set(reflect.ValueOf(map[string]string{"key": "value"}))
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(t, value.Index(0))
	case reflect.Uint8:
		value.SetUint('x')
	default:
		t.Fatalf("no filler for %s", value.Type())
	}
}

// known is a value that an enumeration has.
func known(kind reflect.Type) string {
	switch kind {
	case reflect.TypeFor[NetworkMode]():
		return string(NetworkAllow)
	case reflect.TypeFor[State]():
		return string(StatePaused)
	case reflect.TypeFor[HostMatch]():
		return string(MatchProxy)
	case reflect.TypeFor[SymlinkWrite]():
		return string(SymlinkReplace)
	case reflect.TypeFor[ExitReason]():
		return string(ExitOOM)
	case reflect.TypeFor[FileKind]():
		return string(FileOther)
	}
	return "text"
}

func roundTrip[T any](t *testing.T, convert func(T) T) {
	t.Helper()
	var before T
	fill(t, reflect.ValueOf(&before).Elem())
	if after := convert(before); !cmp.Equal(before, after) {
		t.Error(cmp.Diff(before, after))
	}
}

func TestEveryFieldSurvivesTheWire(t *testing.T) {
	roundTrip(t, func(i Info) Info { return infoFromWire(infoToWire(i)) })
	roundTrip(t, func(s *SandboxSpec) *SandboxSpec { return specFromWire(specToWire(s)) })
	roundTrip(t, func(s *Sandbox) *Sandbox { return sandboxFromWire(sandboxToWire(s)) })
	roundTrip(t, func(r *ExecRequest) *ExecRequest { return execFromWire(execToWire(Ref{}, r)) })
	roundTrip(t, func(s ExitStatus) ExitStatus { return exitFromWire(exitToWire(s)) })
	roundTrip(t, func(i FileInfo) FileInfo { return fileFromWire(fileToWire(i)) })
	roundTrip(t, func(r Ref) Ref { return refFromWire(refToWire(r)) })
}

func TestEveryFieldOfAnErrorSurvivesTheWire(t *testing.T) {
	before := Error{Message: "text", Hint: "do", Option: "--x", Path: "/a\xff\nb", PathReason: PathNoSpace, Size: 7, Limit: 6, RetryAfter: time.Second, LeftBehind: true}
	for kind := range codeOfKind {
		before.Kind = kind
		var after *Error
		if err := fromStatus(context.Background(), "test", toStatus(&before)); !asError(err, &after) {
			t.Fatalf("%s came back as %v", kind, err)
		}
		if !cmp.Equal(before, *after) {
			t.Error(cmp.Diff(before, *after))
		}
	}
}

func asError(err error, to **Error) bool {
	typed, ok := err.(*Error)
	*to = typed
	return ok
}

func fillSpec(t *testing.T, spec *SandboxSpec) {
	t.Helper()
	fill(t, reflect.ValueOf(spec).Elem())
}
