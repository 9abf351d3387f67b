package output

import (
	"bytes"
	"testing"
)

func TestProse(t *testing.T) {
	const text = "One line of a paragraph,\nand another.\n\nUsage:\n  an example that is longer than the terminal\n\nshort\nlines\n"
	for width, want := range map[int]string{
		0:  text,
		40: text,
		20: "One line of a\nparagraph, and\nanother.\n\nUsage:\n  an example that is longer than the terminal\n\nshort\nlines\n",
		5:  "One\nline\nof a\nparagraph,\nand\nanother.\n\nUsage:\n  an example that is longer than the terminal\n\nshort\nlines\n",
	} {
		var stdout bytes.Buffer
		printer := New(&stdout, &stdout, Text, Environment{})
		printer.outWidth = width
		printer.Prose(text)
		if stdout.String() != want {
			t.Errorf("%d columns:\n%s", width, stdout.String())
		}
	}
}
