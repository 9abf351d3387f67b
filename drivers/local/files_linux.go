package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// Stat implements plugin.FileSystem.
func (d *Driver) Stat(ctx context.Context, ref plugin.Ref, path string, follow bool) (plugin.FileInfo, error) {
	reply, err := d.file(ctx, ref, guest.File{Op: guest.OpStat, Path: []byte(path), Follow: follow}, nil, io.Discard)
	if err != nil {
		return plugin.FileInfo{}, err
	}
	if reply.Info == nil {
		return plugin.FileInfo{}, plugin.Errorf(plugin.KindInternal, "the guest helper said nothing about %q", path)
	}
	return fileInfo(reply.Info), nil
}

var errListing = errors.New("the listing is not read any further")

// listLimit bounds, in bytes, what a hostile guest can make the driver hold of a
// directory's entries; it is enough for some 400,000 of them.
const listLimit = 64 << 20

// ReadDir implements plugin.FileSystem.
func (d *Driver) ReadDir(ctx context.Context, ref plugin.Ref, path string) ([]plugin.FileInfo, error) {
	read, write := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := d.file(ctx, ref, guest.File{Op: guest.OpList, Path: []byte(path)}, nil, write)
		_ = write.CloseWithError(err)
		result <- err
	}()
	var entries []plugin.FileInfo
	decoder := json.NewDecoder(io.LimitReader(read, listLimit))
	var broken error
	for broken == nil {
		var info guest.Info
		if broken = decoder.Decode(&info); broken == nil {
			entries = append(entries, fileInfo(&info))
		}
	}
	// Where the listing is cut or broken, the helper is not waited for.
	_ = read.CloseWithError(errListing)
	err := <-result
	switch {
	case errors.Is(err, errListing):
		return nil, plugin.Errorf(plugin.KindInternal, "the directory %q has more entries than can be listed", path)
	case err != nil:
		return nil, err
	case !errors.Is(broken, io.EOF):
		return nil, plugin.Errorf(plugin.KindInternal, "the listing of %q cannot be read: %w", path, broken)
	}
	return entries, nil
}

// ReadFile implements plugin.FileSystem.
func (d *Driver) ReadFile(ctx context.Context, ref plugin.Ref, path string, maxBytes int64, w io.Writer) error {
	_, err := d.file(ctx, ref, guest.File{Op: guest.OpRead, Path: []byte(path), MaxBytes: maxBytes}, nil, w)
	return err
}

// newFileMode is a new file's mode when the host names none.
const newFileMode = 0o644

// WriteFile implements plugin.FileSystem.
func (d *Driver) WriteFile(ctx context.Context, ref plugin.Ref, path string, mode uint32, r io.Reader) error {
	if mode == 0 {
		mode = newFileMode
	}
	_, err := d.file(ctx, ref, guest.File{Op: guest.OpWrite, Path: []byte(path), Mode: mode}, r, io.Discard)
	return err
}

// GetArchive implements plugin.Archiver.
func (d *Driver) GetArchive(ctx context.Context, ref plugin.Ref, path string, follow bool, w io.Writer) error {
	_, err := d.file(ctx, ref, guest.File{Op: guest.OpGet, Path: []byte(path), Follow: follow}, nil, w)
	return err
}

// PutArchive implements plugin.Archiver.
func (d *Driver) PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error {
	_, err := d.file(ctx, ref, guest.File{Op: guest.OpPut, Path: []byte(dir)}, r, io.Discard)
	return err
}

// file has the helper do one operation, with what it reads and writes.
func (d *Driver) file(ctx context.Context, ref plugin.Ref, request guest.File, r io.Reader, w io.Writer) (guest.Reply, error) {
	if strings.ContainsRune(string(request.Path), 0) {
		return guest.Reply{}, plugin.PathErrorf(string(request.Path), plugin.PathInvalid, "the path %q holds a NUL byte", request.Path)
	}
	found, known, done, err := d.use(ctx, ref)
	if err != nil {
		return guest.Reply{}, err
	}
	defer done()
	request.Workdir = []byte(known.workdir())
	call, err := found.startCall(&guest.Request{File: &request}, r != nil)
	if err != nil {
		return guest.Reply{}, plugin.Errorf(plugin.KindInternal, "the sandbox %s could not be asked for %q: %w", found.id, request.Path, err)
	}
	defer call.close()
	stop := context.AfterFunc(ctx, call.giveUp)
	defer stop()
	call.stdout.copyTo(w, call.giveUp)
	call.stderr.copyTo(io.Discard, call.giveUp)
	sent := make(chan error, 1)
	go func() { sent <- call.sendContent(r) }()
	reply, ok := <-call.replies
	if !ok {
		return guest.Reply{}, d.noReply(ctx, found, call, sent)
	}
	if err := call.finishOutput(); err != nil {
		return guest.Reply{}, err
	}
	if reply.Error != nil {
		return guest.Reply{}, fileError(reply.Error, request.MaxBytes)
	}
	return reply, nil
}

// sendContent sends what is uploaded and then that it is whole. When the reader fails,
// the helper sees the conversation end before the content does.
func (c *call) sendContent(r io.Reader) error {
	if r == nil {
		return nil
	}
	_, err := io.CopyBuffer(writerOnly{c.stdin}, readerOnly{r}, make([]byte, copyBuffer))
	if err == nil {
		err = c.send(guest.Control{Commit: true})
	} else {
		c.giveUp()
	}
	_ = c.stdin.Close()
	return err
}

type readerOnly struct{ io.Reader }

// noReply says why a helper said nothing.
func (d *Driver) noReply(ctx context.Context, found sandbox, call *call, sent <-chan error) error {
	output := call.finishOutput()
	call.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if output != nil {
		return fmt.Errorf("what the sandbox sent could not be passed on: %w", output)
	}
	if found.dead(ctx) {
		return plugin.NotFoundf("the sandbox %s ended during the call", found.id)
	}
	if err := <-sent; err != nil {
		return fmt.Errorf("the content could not be sent to the sandbox: %w", err)
	}
	return plugin.Errorf(plugin.KindInternal, "the sandbox %s gave no answer: %s", found.id, call.failed())
}

func fileInfo(info *guest.Info) plugin.FileInfo {
	return plugin.FileInfo{
		Name: string(info.Name), Kind: plugin.FileKind(info.Kind), Size: info.Size, Mode: info.Mode,
		ModTime: info.ModTime, LinkTarget: string(info.Target),
	}
}

// fileError puts what the helper said into the SDK's terms. What it says comes from a
// hostile place, so reasons that are not known become PathOther.
func fileError(failure *guest.Error, limit int64) error {
	path := string(failure.Path)
	switch failure.Reason {
	case guest.ReasonTooLarge:
		return plugin.TooLarge(path, failure.Size, limit)
	case guest.ReasonArchive:
		return plugin.Errorf(plugin.KindInvalid, "%s", failure.Message)
	case guest.ReasonRequest:
		return plugin.Errorf(plugin.KindInternal, "the guest helper does not understand the driver: %s", failure.Message)
	case guest.ReasonMissing, guest.ReasonIsDirectory, guest.ReasonNotDirectory, guest.ReasonNotRegular,
		guest.ReasonPermission, guest.ReasonReadOnly, guest.ReasonNoSpace, guest.ReasonInvalid:
		return plugin.PathErrorf(path, plugin.PathReason(failure.Reason), "%s", failure.Message)
	}
	return plugin.PathErrorf(path, plugin.PathOther, "%s", failure.Message)
}
