package sbxdouble

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) cpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cp SRC DST", Args: cobra.ExactArgs(2)}
	cmd.Flags().BoolP("follow-link", "L", false, "follow links")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		from, inGuest, fromGuest := strings.Cut(args[0], ":")
		to, dst, toGuest := strings.Cut(args[1], ":")
		if fromGuest == toGuest {
			return fail("exactly one of SRC and DST must be SANDBOX:PATH")
		}
		if fromGuest {
			return a.copyOut(from, inGuest, args[1])
		}
		return a.copyIn(args[0], to, dst)
	}
	return cmd
}

// guestRun runs a program in a sandbox as root with input on its stdin.
func (a *app) guestRun(name string, input io.Reader, args ...string) ([]byte, error) {
	box, err := a.store.load(name)
	if err != nil {
		return nil, fail("no sandbox named '%s'", name)
	}
	if started, err := a.boot(box); err != nil {
		return nil, err
	} else if started {
		fmt.Fprintf(os.Stderr, "Sandbox %s started successfully\n", name)
	}
	conn, err := a.dial(name)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out := &frames{out: conn}
	if err := out.writeJSON(frameStart, execRequest{Args: args, User: "root", Dir: "/", Copy: true}); err != nil {
		return nil, err
	}
	go func() {
		_ = out.pump(frameStdin, input)
		_ = out.write(frameStdinEOF, nil)
	}()
	var stdout, stderr bytes.Buffer
	for {
		kind, payload, err := readFrame(conn)
		if err != nil {
			return nil, err
		}
		switch kind {
		case frameStdout:
			stdout.Write(payload)
		case frameStderr:
			stderr.Write(payload)
		case frameExit:
			if string(payload) != "0" {
				return nil, fail("copy: %s", strings.TrimSpace(stderr.String()))
			}
			return stdout.Bytes(), nil
		}
	}
}

// copyIn keeps modes and gives everything to root, as sbx does: a private file
// of the host is then unreadable to the guest's ordinary user.
func (a *app) copyIn(src, name, dst string) error {
	if !path.IsAbs(dst) {
		return fail("path in the sandbox must be absolute: %q", dst)
	}
	base, parent := path.Base(dst), path.Dir(dst)
	if _, err := a.guestRun(name, strings.NewReader(""), "test", "-d", dst); err == nil {
		base, parent = filepath.Base(src), dst
	}
	if strings.HasSuffix(src, "/.") {
		base, parent = ".", dst
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, src, base); err != nil {
		return fail("%v", err)
	}
	_, err := a.guestRun(name, &archive, "tar", "-x", "-p", "--no-same-owner", "-C", parent)
	return err
}

func writeTar(out io.Writer, src, base string) error {
	archive := tar.NewWriter(out)
	err := filepath.WalkDir(src, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, file)
		if err != nil {
			return err
		}
		header.Name = path.Join(base, filepath.ToSlash(rel))
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func (a *app) copyOut(name, src, dst string) error {
	if !path.IsAbs(src) {
		return fail("path in the sandbox must be absolute: %q", src)
	}
	content, err := a.guestRun(name, strings.NewReader(""), "tar", "-c", "-C", path.Dir(src), path.Base(src))
	if err != nil {
		return err
	}
	if info, err := os.Stat(dst); err == nil && info.IsDir() {
		dst = filepath.Join(dst, path.Base(src))
	}
	archive := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(archive, header, filepath.Join(dst, strings.TrimPrefix(header.Name, path.Base(src)))); err != nil {
			return fail("%v", err)
		}
	}
}

func extract(archive *tar.Reader, header *tar.Header, target string) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, header.FileInfo().Mode().Perm())
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, target)
	case tar.TypeReg:
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, header.FileInfo().Mode().Perm())
	}
	return nil
}
