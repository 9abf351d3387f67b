package reference

import (
	"context"
	"io"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func (b *broken) ReadFile(ctx context.Context, ref plugin.Ref, path string, maxBytes int64, w io.Writer) error {
	path = b.breakPath(path)
	if b.defect == "ignores-read-limit" {
		maxBytes = 0
	}
	if b.defect == "changes-file-bytes" {
		w = changedBy(w, func(data []byte) []byte { return []byte(strings.ToUpper(string(data))) })
	}
	err := b.Driver.ReadFile(ctx, ref, path, maxBytes, w)
	if plugin.KindOf(err) == plugin.KindPath {
		switch b.defect {
		case "reads-missing-as-empty":
			return nil
		case "takes-files-for-sandboxes":
			return plugin.NotFoundf("not found")
		}
	}
	return err
}

func (b *broken) breakPath(path string) string {
	switch b.defect {
	case "trims-paths":
		return strings.TrimSpace(path)
	case "cuts-paths-at-nul":
		path, _, _ = strings.Cut(path, "\x00")
	case "starts-elsewhere":
		if !strings.HasPrefix(path, "/") {
			return "/tmp/" + path
		}
	}
	return path
}

// endsQuietly takes a failing source for one that has ended.
type endsQuietly struct{ io.Reader }

func (e endsQuietly) Read(buffer []byte) (int, error) {
	n, err := e.Reader.Read(buffer)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (b *broken) WriteFile(ctx context.Context, ref plugin.Ref, path string, mode uint32, r io.Reader) error {
	path = b.breakPath(path)
	switch b.defect {
	case "keeps-half-files":
		ctx, r = context.WithoutCancel(ctx), endsQuietly{r}
	case "ignores-mode":
		mode = 0o644
	}
	return b.Driver.WriteFile(ctx, ref, path, mode, r)
}

func (b *broken) ReadDir(ctx context.Context, ref plugin.Ref, path string) ([]plugin.FileInfo, error) {
	entries, err := b.Driver.ReadDir(ctx, ref, path)
	kept := []plugin.FileInfo{}
	for _, entry := range entries {
		if b.defect == "hides-dot-files" && strings.HasPrefix(entry.Name, ".") || b.defect == "cuts-lists" && len(kept) == 10_000 {
			continue
		}
		if b.defect == "follows-links-in-lists" && entry.Kind == plugin.FileSymlink {
			entry.Kind = plugin.FileRegular
		}
		kept = append(kept, entry)
	}
	if b.defect == "lists-missing-as-empty" && plugin.KindOf(err) == plugin.KindPath {
		err = nil
	}
	return kept, err
}

func (b *broken) GetArchive(ctx context.Context, ref plugin.Ref, path string, follow bool, w io.Writer) error {
	return b.Driver.GetArchive(ctx, ref, path, follow || b.defect == "always-follows", w)
}

func (b *broken) PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error {
	if b.defect == "keeps-half-archives" {
		ctx, r = context.WithoutCancel(ctx), endsQuietly{r}
	}
	err := b.Driver.PutArchive(ctx, ref, dir, r)
	if b.defect == "hides-unpack-errors" {
		return nil
	}
	return err
}
