package output

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
)

// Table writes rows under headings, in columns two blanks apart and without trailing
// blanks. On a terminal that is too narrow, long cells are shortened in their middle; for
// programs and files they never are.
func (p *Printer) Table(headings []string, rows [][]string) {
	widths := make([]int, len(headings))
	for column, heading := range headings {
		widths[column] = lipgloss.Width(heading)
	}
	for _, row := range rows {
		for column := range row {
			row[column] = Printable(row[column])
			widths[column] = max(widths[column], lipgloss.Width(row[column]))
		}
	}
	if p.outWidth > 0 {
		fit(widths, lipgloss.Width(headings[len(headings)-1]), p.outWidth)
	}
	p.row(widths, headings, p.outStyle.heading)
	for _, row := range rows {
		p.row(widths, row, lipgloss.NewStyle())
	}
}

const (
	columnGap = 2
	// narrow holds a sandbox's id, which is of no use shortened.
	narrow = 16
	// narrowest is for names, where nothing else helps.
	narrowest = 8
)

// fit narrows columns to a terminal: the widest one first, then the first, which is the
// name. The last is left alone, with the width that it has to have, since it can go on in
// the next line.
func fit(widths []int, last, terminal int) {
	others := widths[:len(widths)-1]
	excess := last - terminal
	for _, width := range others {
		excess += width + columnGap
	}
	for ; excess > 0 && len(others) > 0; excess-- {
		widest := 0
		for column, width := range others {
			if width > others[widest] {
				widest = column
			}
		}
		switch {
		case others[widest] > narrow:
			others[widest]--
		case others[0] > narrowest:
			others[0]--
		default:
			return
		}
	}
}

// shorten leaves out the middle of a text, since names and paths differ at their ends.
func shorten(text string, width int) string {
	if lipgloss.Width(text) <= width {
		return text
	}
	const gap = "..."
	head, tail := []rune(text), []rune(text)
	for room := (width - len(gap) + 1) / 2; lipgloss.Width(string(head)) > room; {
		head = head[:len(head)-1]
	}
	for room := (width - len(gap)) / 2; lipgloss.Width(string(tail)) > room; {
		tail = tail[1:]
	}
	return string(head) + gap + string(tail)
}

func (p *Printer) row(widths []int, cells []string, style lipgloss.Style) {
	var line strings.Builder
	for column, cell := range cells {
		if column == len(cells)-1 {
			line.WriteString(style.Render(cell))
			break
		}
		cell = shorten(cell, widths[column])
		line.WriteString(style.Render(cell))
		line.WriteString(strings.Repeat(" ", widths[column]-lipgloss.Width(cell)+columnGap))
	}
	p.Line("%s", strings.TrimRight(line.String(), " "))
}

// Mark colours a word by whether it is good news.
func (p *Printer) Mark(word string, good bool) string {
	if good {
		return p.outStyle.good.Render(word)
	}
	return p.outStyle.bad.Render(word)
}

// Caution colours a word that is neither good nor bad news.
func (p *Printer) Caution(word string) string { return p.outStyle.warning.Render(word) }

// Heading renders a heading.
func (p *Printer) Heading(text string) string { return p.outStyle.heading.Render(text) }

// Ago says how long ago a time was.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Span(now.Sub(t)) + " ago"
}

// Until says how long a lease still runs.
func Until(t *time.Time, now time.Time) string {
	switch {
	case t == nil || t.IsZero():
		return "never"
	case !now.Before(*t):
		return "expired"
	}
	return "in " + Span(t.Sub(now))
}

// Span rounds a duration down to one unit, or to minutes where a few hours are left:
// a lease of two hours is not to look like one of an hour.
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour && d.Truncate(time.Hour) != d.Truncate(time.Minute):
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
