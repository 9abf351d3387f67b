package conformance

import (
	"context"
	"io"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Calls is what a host can ask of a driver: the methods of plugin.Client.
type Calls interface {
	Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error)
	Inspect(ctx context.Context, ref plugin.Ref) (*plugin.Sandbox, error)
	List(ctx context.Context, request plugin.ListRequest) (*plugin.SandboxList, error)
	Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error)
	Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error)
	AccessLog(ctx context.Context, ref plugin.Ref) ([]plugin.Access, error)
	CheckHealth(ctx context.Context) ([]plugin.Check, error)
	Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error)
	Stat(ctx context.Context, ref plugin.Ref, path string, follow bool) (plugin.FileInfo, error)
	ReadDir(ctx context.Context, ref plugin.Ref, path string) ([]plugin.FileInfo, error)
	ReadFile(ctx context.Context, ref plugin.Ref, path string, maxBytes int64, w io.Writer) error
	WriteFile(ctx context.Context, ref plugin.Ref, path string, mode uint32, r io.Reader) error
	GetArchive(ctx context.Context, ref plugin.Ref, path string, follow bool, w io.Writer) error
	PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error
	// Close ends the driver.
	Close()
}
