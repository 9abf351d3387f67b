package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func fileListCases() []Case {
	return []Case{
		{
			ID: "files.list", Group: GroupFiles, Needs: filesOnly, run: checkListing,
			Reason: "every entry, hidden ones too, once and with its kind",
			Source: "airflow 74",
		},
		{
			ID: "files.list-edges", Group: GroupFiles, Needs: filesOnly, run: checkListEdges,
			Reason: "an empty directory is empty; a missing one, or a file, is an error and not an empty list",
			Source: "airflow 75",
		},
		{
			ID: "files.list-20000", Group: GroupFiles, Needs: filesOnly, Limit: 3 * time.Minute, run: checkLongList,
			Reason: "a list that is cut silently hides files",
			Source: "airflow 76; reports 65",
		},
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// list reads a directory of the case.
func (b *box) list(name string) []plugin.FileInfo {
	entries, err := b.t.driver().ReadDir(b.t.ctx, b.ref, b.path(name))
	if err != nil {
		b.t.Fatalf("listing %s: %v", name, err)
	}
	return entries
}

// sameNames compares the names in a directory.
func (t *T) sameNames(b *box, dir string, want []string) {
	got := []string{}
	for _, entry := range b.list(dir) {
		got = append(got, entry.Name)
	}
	want = slices.Sorted(slices.Values(want))
	slices.Sort(got)
	if slices.Equal(got, want) {
		return
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%q is not listed", name)
			break
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%q is listed, but not there", name)
			break
		}
	}
	t.Errorf("%d names are listed, want %d", len(got), len(want))
}

func checkListing(t *T) {
	box := t.shared()
	box.must("rm -rf dir; mkdir dir; cd dir; printf 123 >f; chmod 640 f; mkdir d .h; touch .hidden 'new\nline'; ln -s f l; ln -s d ld; mkfifo p")
	want := map[string]plugin.FileKind{
		"f": plugin.FileRegular, "d": plugin.FileDirectory, ".h": plugin.FileDirectory, ".hidden": plugin.FileRegular, "new\nline": plugin.FileRegular,
		"l": plugin.FileSymlink, "ld": plugin.FileSymlink, "p": plugin.FileOther,
	}
	entries := box.list("dir")
	for _, entry := range entries {
		kind, ok := want[entry.Name]
		if !ok || entry.Kind != kind {
			t.Errorf("%q is listed as %s, want %q", entry.Name, entry.Kind, kind)
		}
		if entry.Name == "f" && (entry.Size != 3 || entry.Mode != 0o640) {
			t.Errorf("the file has size %d and mode %o, want 3 and 640", entry.Size, entry.Mode)
		}
		if entry.Name == "l" && entry.LinkTarget != "f" {
			t.Errorf("the link's target is %q, want f", entry.LinkTarget)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d entries are listed, want %d", len(entries), len(want))
	}
}

func checkListEdges(t *T) {
	box := t.shared()
	box.must("rm -rf -- * ; mkdir empty dir -- -d; touch dir/inside -- -d/inside file; ln -s dir link")
	if entries := box.list("empty"); len(entries) != 0 {
		t.Errorf("an empty directory has %d entries", len(entries))
	}
	t.sameNames(box, "link", []string{"inside"})
	t.sameNames(box, "-d", []string{"inside"})
	_, err := t.driver().ReadDir(t.ctx, box.ref, box.path("missing"))
	t.wantPath("listing a missing directory", err, plugin.PathMissing)
	_, err = t.driver().ReadDir(t.ctx, box.ref, box.path("file"))
	t.wantPath("listing a file", err, plugin.PathNotDirectory)
}

func checkLongList(t *T) {
	const count = 20_000
	box := t.shared()
	// Names of a length at which the list is well above a megabyte.
	box.must(`mkdir -p many && cd many && i=0
while [ $i -lt 20000 ]; do
	: >"entry-with-a-name-that-makes-the-list-long-enough-to-be-cut-somewhere-$i"
	i=$((i + 1))
done`)
	defer box.sh("rm -rf many")
	entries, err := t.driver().ReadDir(t.ctx, box.ref, box.path("many"))
	if err != nil {
		t.wantKind(fmt.Sprintf("listing %d entries", count), err, plugin.KindTooLarge)
		return
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		seen[entry.Name] = true
	}
	if len(seen) != count || len(entries) != count {
		t.Errorf("%d entries are listed, %d of them different, want %d", len(entries), len(seen), count)
	}
}
