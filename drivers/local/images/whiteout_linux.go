package images

import (
	"fmt"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
)

// The names by which a layer takes away what the layers below it have.
const (
	whiteout = ".wh."
	// opaque in a directory takes all of its entries away.
	opaque = ".wh..wh..opq"
	// bookkeeping is AUFS's own.
	bookkeeping = ".wh..wh."
)

// takeAway carries out a whiteout.
func (t *tree) takeAway(parents []string, name, full string) error {
	directory, err := t.walk(parents, false)
	if err != nil || directory == nil {
		return err
	}
	switch hidden := strings.TrimPrefix(name, whiteout); {
	case name == opaque:
		for name := range directory.Children {
			t.hide(directory, name)
		}
	case strings.HasPrefix(name, bookkeeping):
	case hidden == "" || hidden == "." || hidden == "..":
		return fmt.Errorf("the whiteout %q names nothing", full)
	default:
		t.hide(directory, hidden)
	}
	return nil
}

// hide removes what lower layers have under a name, and reports whether anything of
// the present layer is left there.
func (t *tree) hide(directory *erofs.Node, name string) (left bool) {
	node := directory.Children[name]
	if node == nil {
		return false
	}
	left = t.fresh[entry{directory, name}]
	if node.IsDirectory() {
		for inner := range node.Children {
			if t.hide(node, inner) {
				left = true
			}
		}
	}
	if !left {
		delete(directory.Children, name)
	}
	return left
}
