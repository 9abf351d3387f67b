package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func TestAFailedCreateIsRolledBack(t *testing.T) {
	for _, test := range []struct {
		name        string
		handle      string
		destroy     error
		wantDestroy bool
		wantLeft    bool
	}{
		{"nothing was made", "", nil, false, false},
		{"made and removed", "h1", nil, true, false},
		{"made and stuck", "h1", errors.New("the backend is down"), true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			destroyed := ""
			client, _ := dial(t, &fakeDriver{
				create: func(_ context.Context, _ *SandboxSpec, events CreateEvents) (*Sandbox, error) {
					if test.handle != "" {
						events.Created([]byte(test.handle))
					}
					return nil, Errorf(KindUnavailable, "no answer").WithHint("wait")
				},
				destroy: func(ctx context.Context, ref Ref) (bool, error) {
					destroyed = ref.ID + string(ref.Handle)
					return false, errors.Join(ctx.Err(), test.destroy)
				},
			})
			_, err := client.Create(context.Background(), &SandboxSpec{ID: "sb-"}, noEvents{})
			typed := kindIs(t, err, KindUnavailable)
			if (destroyed == "sb-h1") != test.wantDestroy || typed.LeftBehind != test.wantLeft || typed.Hint != "wait" || !strings.HasPrefix(typed.Message, "no answer") {
				t.Errorf("destroyed %q, error %+v", destroyed, typed)
			}
		})
	}
}

func TestACancelledCreateIsRolledBackAndAnswered(t *testing.T) {
	destroyed := false
	waiting := make(chan struct{})
	client, _ := dial(t, &fakeDriver{
		create: func(ctx context.Context, _ *SandboxSpec, events CreateEvents) (*Sandbox, error) {
			events.Created([]byte("h"))
			close(waiting)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		destroy: func(ctx context.Context, _ Ref) (bool, error) { destroyed = true; return false, ctx.Err() },
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-waiting; cancel() }()
	_, err := client.Create(ctx, &SandboxSpec{}, noEvents{})
	if typed := kindIs(t, err, KindCanceled); !destroyed || typed.LeftBehind {
		t.Errorf("destroyed %v, error %+v", destroyed, typed)
	}
}

func TestAnotherSandboxIsNotTaken(t *testing.T) {
	client, _ := dial(t, &fakeDriver{create: func(context.Context, *SandboxSpec, CreateEvents) (*Sandbox, error) {
		return &Sandbox{ID: "sb-other"}, nil
	}})
	_, err := client.Create(context.Background(), &SandboxSpec{ID: "sb-mine"}, noEvents{})
	var lost *ConnectionError
	if !errors.As(err, &lost) {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsAnErrorAndNotTheEnd(t *testing.T) {
	client, _ := dial(t, &fakeDriver{
		list:    func(context.Context, ListRequest) (*SandboxList, error) { panic("at the disco") },
		destroy: func(context.Context, Ref) (bool, error) { return true, nil },
	})
	_, err := client.List(context.Background(), ListRequest{})
	if typed := kindIs(t, err, KindInternal); !strings.Contains(typed.Message, "at the disco") {
		t.Errorf("got %q", typed.Message)
	}
	if gone, err := client.Destroy(context.Background(), Ref{}); !gone || err != nil {
		t.Errorf("the next call gave %v, %v", gone, err)
	}
}

func TestHugeErrorTextsAreCut(t *testing.T) {
	client, _ := dial(t, &fakeDriver{destroy: func(context.Context, Ref) (bool, error) {
		return false, errors.New(strings.Repeat("é\xff", 10<<20))
	}})
	_, err := client.Destroy(context.Background(), Ref{})
	if typed := kindIs(t, err, KindInternal); len(typed.Message) > maxErrorText {
		t.Errorf("%d bytes arrived", len(typed.Message))
	}
}

func TestLongListingsArrive(t *testing.T) {
	const many = 20_000
	client, _ := dial(t, &fakeDriver{list: func(context.Context, ListRequest) (*SandboxList, error) {
		list := &SandboxList{Warnings: []string{"one row is bad"}}
		for i := range many {
			list.Sandboxes = append(list.Sandboxes, &Sandbox{ID: fmt.Sprint(i), Labels: map[string]string{"pad": strings.Repeat("x", 500)}})
		}
		return list, nil
	}})
	list, err := client.List(context.Background(), ListRequest{})
	if err != nil || len(list.Sandboxes) != many || list.Sandboxes[many-1].ID != fmt.Sprint(many-1) || len(list.Warnings) != 1 {
		t.Errorf("%d sandboxes, %v", len(list.Sandboxes), err)
	}
}

func TestInspectFallsBackToTheListing(t *testing.T) {
	client, _ := dial(t, &fakeDriver{list: func(context.Context, ListRequest) (*SandboxList, error) {
		return &SandboxList{Sandboxes: []*Sandbox{{ID: "sb-a"}, {ID: "sb-b", Image: "i"}}}, nil
	}})
	if sandbox, err := client.Inspect(context.Background(), Ref{ID: "sb-b"}); err != nil || sandbox.Image != "i" {
		t.Errorf("got %v, %v", sandbox, err)
	}
	_, err := client.Inspect(context.Background(), Ref{ID: "sb-c"})
	kindIs(t, err, KindNotFound)
}

func TestWhatADriverLacksIsRefused(t *testing.T) {
	client, _ := dial(t, &fakeDriver{info: Info{Name: "plain"}})
	_, err := client.Stat(context.Background(), Ref{}, "/", false)
	kindIs(t, err, KindRefused)
	kindIs(t, client.ReadFile(context.Background(), Ref{}, "/x", 0, io.Discard), KindRefused)
	kindIs(t, client.WriteFile(context.Background(), Ref{}, "/x", 0, strings.NewReader("x")), KindRefused)
	kindIs(t, client.PutArchive(context.Background(), Ref{}, "/x", strings.NewReader("x")), KindRefused)
	info, err := client.Info(context.Background())
	if err != nil || info.Capabilities.Files.Files || info.Capabilities.Lease.Renew {
		t.Errorf("claims %+v, %v", info.Capabilities, err)
	}
}

// memoryFiles is a driver with files in a map.
type memoryFiles struct {
	fakeDriver
	files map[string]string
	read  func(io.Writer) error
}

func (m *memoryFiles) Stat(context.Context, Ref, string, bool) (FileInfo, error) {
	return FileInfo{}, PathErrorf("/x", PathMissing, "no such file")
}

func (m *memoryFiles) ReadDir(context.Context, Ref, string) ([]FileInfo, error) { return nil, nil }

func (m *memoryFiles) ReadFile(_ context.Context, _ Ref, _ string, _ int64, w io.Writer) error {
	return m.read(w)
}

func (m *memoryFiles) WriteFile(_ context.Context, _ Ref, path string, _ uint32, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err == nil {
		m.files[path] = string(data)
	}
	return err
}

func TestFilesArriveWholeOrNotAtAll(t *testing.T) {
	driver := &memoryFiles{files: map[string]string{}}
	client, _ := dial(t, driver)
	content := strings.Repeat("0123456789", 100_000)
	if err := client.WriteFile(context.Background(), Ref{}, "/ok", 0o644, strings.NewReader(content)); err != nil || driver.files["/ok"] != content {
		t.Fatalf("a whole file: %v, %d bytes", err, len(driver.files["/ok"]))
	}
	broken := errors.New("the disk broke")
	err := client.WriteFile(context.Background(), Ref{}, "/cut", 0o644, io.MultiReader(strings.NewReader(content), errReader{broken}))
	if _, there := driver.files["/cut"]; !errors.Is(err, broken) || there {
		t.Errorf("a cut file: %v, kept: %v", err, there)
	}
	driver.read = func(w io.Writer) error { _, err := io.WriteString(w, content); return err }
	var got bytes.Buffer
	if err := client.ReadFile(context.Background(), Ref{}, "/ok", 0, &got); err != nil || got.String() != content {
		t.Errorf("reading: %v, %d bytes", err, got.Len())
	}
	driver.read = func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return TooLarge("/ok", 10, 5) }
	typed := kindIs(t, client.ReadFile(context.Background(), Ref{}, "/ok", 5, io.Discard), KindTooLarge)
	if typed.Size != 10 || typed.Limit != 5 {
		t.Errorf("got %+v", typed)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// rawFiles sends answers that the SDK never would.
type rawFiles struct {
	driverpb.UnimplementedDriverServiceServer
	answers []*driverpb.ReadFileResponse
}

func (r *rawFiles) ReadFile(_ *driverpb.ReadFileRequest, stream grpc.ServerStreamingServer[driverpb.ReadFileResponse]) error {
	for _, answer := range r.answers {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

func TestADownloadThatWasCutOrDamagedIsAnError(t *testing.T) {
	data := &driverpb.ReadFileResponse{Data: []byte("hello")}
	trailer := func(bytes uint64, crc uint32) *driverpb.ReadFileResponse {
		return &driverpb.ReadFileResponse{Control: &driverpb.ReadFileResponse_Trailer{Trailer: &driverpb.Trailer{Bytes: bytes, Crc32C: crc}}}
	}
	sum := &checksum{}
	sum.add([]byte("hello"))
	for name, test := range map[string]struct {
		answers []*driverpb.ReadFileResponse
		ok      bool
	}{
		"whole":          {[]*driverpb.ReadFileResponse{data, trailer(5, sum.crc)}, true},
		"no trailer":     {[]*driverpb.ReadFileResponse{data}, false},
		"nothing":        {nil, false},
		"wrong length":   {[]*driverpb.ReadFileResponse{data, trailer(6, sum.crc)}, false},
		"wrong checksum": {[]*driverpb.ReadFileResponse{data, trailer(5, sum.crc+1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := dialService(t, func(s *grpc.Server) { driverpb.RegisterDriverServiceServer(s, &rawFiles{answers: test.answers}) })
			err := client.ReadFile(context.Background(), Ref{}, "/x", 0, io.Discard)
			if (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLabelsComeBack(t *testing.T) {
	spec := &SandboxSpec{}
	fillSpec(t, spec)
	labels := BackendLabels(spec)
	sandbox, ours := SandboxFromLabels(labels)
	if !ours || sandbox.ID != spec.ID || sandbox.Name != spec.Name || sandbox.Owner != spec.Owner ||
		!sandbox.CreatedAt.Equal(spec.CreatedAt) || !sandbox.ExpiresAt.Equal(spec.ExpiresAt) || fmt.Sprint(sandbox.Labels) != fmt.Sprint(spec.Labels) {
		t.Errorf("got %+v, ours %v", sandbox, ours)
	}
	for name, labels := range map[string]map[string]string{
		"none": {}, "another tool's": {LabelCreatedBy: "airflow", LabelID: "x"}, "no id": {LabelCreatedBy: CreatedBy},
	} {
		if _, ours := SandboxFromLabels(labels); ours {
			t.Errorf("%s: taken for ours", name)
		}
	}
	labels[LabelExpiresAt] = "soon"
	if sandbox, _ := SandboxFromLabels(labels); !sandbox.ExpiresAt.IsZero() {
		t.Errorf("a spoilt expiry became %s", sandbox.ExpiresAt)
	}
}
