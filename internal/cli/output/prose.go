package output

import (
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// Prose writes a text of paragraphs. On a terminal that is too narrow for their lines they
// are broken anew, between words; lines that begin with a blank are examples and tables,
// and stay as they are.
func (p *Printer) Prose(text string) {
	text = strings.TrimRight(text, "\n")
	if p.outWidth > 0 {
		text = reflow(text, p.outWidth)
	}
	p.Line("%s", text)
}

func reflow(text string, width int) string {
	var done, paragraph []string
	flush := func() {
		done = append(done, fill(paragraph, width)...)
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			flush()
			done = append(done, line)
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return strings.Join(done, "\n")
}

// fill breaks a paragraph's lines anew if one of them is too long.
func fill(lines []string, width int) []string {
	fits := true
	for _, line := range lines {
		fits = fits && lipgloss.Width(line) <= width
	}
	if fits {
		return lines
	}
	var filled []string
	line := ""
	for _, word := range strings.Fields(strings.Join(lines, " ")) {
		switch {
		case line == "":
			line = word
		case lipgloss.Width(line)+1+lipgloss.Width(word) > width:
			filled = append(filled, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(filled, line)
}
