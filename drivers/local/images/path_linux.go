package images

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
)

// splitName cuts a name into its parts. One that begins with "/" means the root of the
// image, as it does to docker.
func splitName(name string) ([]string, error) {
	if len(name) > longestPath {
		return nil, fmt.Errorf("the name %.40q... is longer than %d bytes", name, longestPath)
	}
	if strings.Contains(name, "\x00") {
		return nil, fmt.Errorf("the name %q has a zero byte", name)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, fmt.Errorf("the name %q leads upwards", name)
		case len(part) > erofs.MaxName:
			return nil, fmt.Errorf("the name %.40q... has a part of more than %d bytes", name, erofs.MaxName)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// walk returns the directory at a path, following symbolic links inside the tree as
// the guest will. What is missing, or is no directory, is made; or, without create,
// nil is returned.
func (t *tree) walk(parts []string, create bool) (*erofs.Node, error) {
	way := []*erofs.Node{t.root}
	links := 0
	for len(parts) > 0 {
		name := parts[0]
		parts = parts[1:]
		here := way[len(way)-1]
		switch name {
		case "", ".":
			continue
		case "..":
			way = way[:max(1, len(way)-1)]
			continue
		}
		child := here.Children[name]
		if child != nil && child.IsSymlink() {
			if links++; links > mostLinks {
				return nil, errors.New("too many symbolic links are on the way")
			}
			if path.IsAbs(child.Target) {
				way = way[:1]
			}
			parts = append(strings.Split(child.Target, "/"), parts...)
			continue
		}
		if child == nil || !child.IsDirectory() {
			if !create {
				return nil, nil
			}
			if len(name) > erofs.MaxName {
				return nil, fmt.Errorf("a symbolic link leads to a name of more than %d bytes", erofs.MaxName)
			}
			child = erofs.NewDirectory(0o755)
			if err := t.put(here, name, child); err != nil {
				return nil, err
			}
		}
		if way = append(way, child); len(way) > deepest {
			return nil, fmt.Errorf("more than %d directories are in one another", deepest)
		}
	}
	return way[len(way)-1], nil
}
