package cli

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/internal/transfer"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// lsPathResult is the JSON of ls SANDBOX:PATH.
type lsPathResult struct {
	output.Header
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	Entries []file `json:"entries"`

	now time.Time
}

// file is one entry of a directory in a sandbox.
type file struct {
	// Name is valid UTF-8; NameBase64 is there when the real name is not.
	Name       string `json:"name"`
	NameBase64 string `json:"name_base64,omitempty"`
	// Type is file, directory, symlink or other.
	Type string `json:"type"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Mode is the permission bits in octal.
	Mode       string    `json:"mode"`
	ModifiedAt time.Time `json:"modified_at"`
	LinkTarget string    `json:"link_target,omitempty"`
}

func (r *lsPathResult) Text(p *output.Printer) {
	var rows [][]string
	for _, entry := range r.Entries {
		name := entry.Name
		switch {
		case entry.Type == string(plugin.FileDirectory):
			name += "/"
		case entry.LinkTarget != "":
			name += " -> " + entry.LinkTarget
		}
		size := spec.FormatSize(uint64(max(entry.Size, 0)))
		if entry.Type == string(plugin.FileDirectory) {
			size = "-"
		}
		rows = append(rows, []string{entry.Mode, size, output.Ago(entry.ModifiedAt, r.now), name})
	}
	if len(rows) > 0 {
		p.Table([]string{"MODE", "SIZE", "MODIFIED", "NAME"}, rows)
	}
}

func (a *App) runLsPath(ctx context.Context, argument string) (output.Result, error) {
	arg, err := transfer.ParseArg(argument)
	if err != nil {
		return nil, err
	}
	if arg.Side != transfer.SideSandbox {
		return nil, usagef("%q names no sandbox; write SANDBOX:PATH to list a directory in one", argument)
	}
	found, err := a.open(ctx, arg.Sandbox)
	if err != nil {
		return nil, err
	}
	defer found.driver.Close()
	result := &lsPathResult{Sandbox: found.record.Name, Path: arg.Path, Entries: []file{}, now: a.Now()}
	entries, err := found.list(ctx, arg.Path)
	if err != nil {
		return result, gone(found.record, err)
	}
	slices.SortFunc(entries, func(x, y plugin.FileInfo) int { return strings.Compare(x.Name, y.Name) })
	for _, entry := range entries {
		result.Entries = append(result.Entries, describeFile(entry))
	}
	return result, nil
}

// list lists a directory; a file is its own only entry, as ls shows it.
func (t *target) list(ctx context.Context, path string) ([]plugin.FileInfo, error) {
	if !t.driver.Info.Capabilities.Files.Files {
		return nil, plugin.Refusedf("ls", "driver %s cannot look at files", t.record.Driver)
	}
	info, err := t.driver.Stat(ctx, t.ref(), path, true)
	if err != nil {
		return nil, err
	}
	if info.Kind != plugin.FileDirectory {
		return []plugin.FileInfo{info}, nil
	}
	return t.driver.ReadDir(ctx, t.ref(), path)
}

func describeFile(info plugin.FileInfo) file {
	described := file{
		Name: strings.ToValidUTF8(info.Name, "\uFFFD"), Type: string(info.Kind), Size: info.Size,
		Mode:       fmt.Sprintf("%04o", info.Mode&(0o7000|uint32(fs.ModePerm))),
		ModifiedAt: info.ModTime, LinkTarget: strings.ToValidUTF8(info.LinkTarget, "\uFFFD"),
	}
	if !utf8.ValidString(info.Name) {
		described.NameBase64, _ = output.Bytes([]byte(info.Name))
	}
	return described
}
