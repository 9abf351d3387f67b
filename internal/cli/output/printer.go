package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/mattn/go-isatty"
	"github.com/muesli/termenv"
	"golang.org/x/term"
)

// Format is how results are written.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

// Printer writes results and messages. Nothing else in sandboxctl writes to stdout,
// but for a guest command's own output.
type Printer struct {
	out, err           io.Writer
	format             Format
	outStyle, errStyle styles
	// status says that stderr is a terminal that can replace a line.
	status bool
	// outWidth is the width of the terminal that stdout is, or 0.
	outWidth int
	// field is the dotted path of the one value to write; see Select.
	field string
	// statusShown says that a status line stands on the terminal.
	statusShown bool
}

// Environment is what decides on colour.
type Environment struct {
	// Getenv looks a variable up.
	Getenv func(string) string
	// Color is auto, always or never.
	Color string
}

func (e Environment) getenv(name string) string {
	if e.Getenv == nil {
		return ""
	}
	return e.Getenv(name)
}

// New returns a printer for two streams.
func New(out, err io.Writer, format Format, env Environment) *Printer {
	return &Printer{
		out: out, err: err, format: format,
		outStyle: newStyles(out, env), errStyle: newStyles(err, env),
		status: IsTerminal(err) && env.getenv("TERM") != "dumb", outWidth: TerminalWidth(out),
	}
}

// TerminalWidth is a terminal's, in columns, and 0 for what is none or does not know.
func TerminalWidth(stream any) int {
	if !IsTerminal(stream) {
		return 0
	}
	width, _, err := term.GetSize(int(stream.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// Format returns how results are written.
func (p *Printer) Format() Format { return p.format }

// Finish writes a command's result and failure: in JSON one object on one line of
// stdout, as the last thing written; for people the result on stdout and the failure
// on stderr.
func (p *Printer) Finish(kind string, result Result, failure *Error) error {
	p.clearStatus()
	if p.format == JSON {
		line, err := Encode(kind, result, failure)
		switch {
		case err != nil:
			return err
		case p.field != "":
			return p.writeField(line, failure)
		}
		_, err = p.out.Write(line)
		return err
	}
	var buffered bytes.Buffer
	if result != nil {
		text := *p
		text.out = &buffered
		result.Text(&text)
	}
	_, err := p.out.Write(buffered.Bytes())
	if failure != nil {
		p.Failure(failure)
	}
	return err
}

// Encode returns the JSON object of a result with its newline.
func Encode(kind string, result Result, failure *Error) ([]byte, error) {
	if result == nil {
		result = &Header{}
	}
	header := result.header()
	header.Schema, header.Kind, header.OK, header.Error = SchemaVersion, kind, failure == nil, failure
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return buffer.Bytes(), nil
}

// Line writes a line to stdout in text format.
func (p *Printer) Line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Failure writes a failure to stderr: one line, and one more with what to do.
func (p *Printer) Failure(failure *Error) {
	p.clearStatus()
	message := failure.Message
	if failure.Sandbox != "" && !strings.Contains(message, failure.Sandbox) {
		message = failure.Sandbox + ": " + message
	}
	fmt.Fprintf(p.err, "sandboxctl: %s\n", Printable(message))
	for _, line := range failure.Details {
		fmt.Fprintf(p.err, "  | %s\n", Printable(line))
	}
	if failure.Hint != "" {
		fmt.Fprintf(p.err, "%s %s\n", p.errStyle.faint.Render("hint:"), Printable(failure.Hint))
	}
}

// Warn writes a warning to stderr.
func (p *Printer) Warn(format string, args ...any) {
	p.clearStatus()
	fmt.Fprintf(p.err, "%s %s\n", p.errStyle.warning.Render("warning:"), Printable(fmt.Sprintf(format, args...)))
}

// Note writes a remark to stderr.
func (p *Printer) Note(format string, args ...any) {
	p.clearStatus()
	fmt.Fprintln(p.err, Printable(fmt.Sprintf(format, args...)))
}

// Status shows what goes on, on one line of stderr that the next one replaces. Off a
// terminal, and on one that cannot replace a line, it shows nothing.
func (p *Printer) Status(format string, args ...any) {
	if !p.status || p.format == JSON {
		return
	}
	text := Printable(fmt.Sprintf(format, args...))
	// What goes on in a second line is not replaced by the next status.
	if width := TerminalWidth(p.err); width > 1 {
		text = shorten(text, width-1)
	}
	fmt.Fprintf(p.err, "\r\x1b[K%s", p.errStyle.faint.Render(text))
	p.statusShown = true
}

// NoStatus keeps Status from showing anything, as --quiet asks for.
func (p *Printer) NoStatus() { p.status = false }

func (p *Printer) clearStatus() {
	if p.statusShown {
		fmt.Fprint(p.err, "\r\x1b[K")
		p.statusShown = false
	}
}

// styles are the few colours there are; ANSI 0 to 15 only, since asking a terminal
// for its background can block for seconds (lipgloss issue 73). So they have to be
// readable on black and on white, which yellow, cyan and the bright ones are not.
type styles struct {
	heading, faint, warning, good, bad lipgloss.Style
}

func newStyles(stream io.Writer, env Environment) styles {
	renderer := lipgloss.NewRenderer(stream)
	// Set explicitly, since lipgloss would ask the environment itself otherwise.
	renderer.SetColorProfile(profile(stream, env))
	renderer.SetHasDarkBackground(true)
	return styles{
		heading: renderer.NewStyle().Bold(true),
		faint:   renderer.NewStyle().Faint(true),
		warning: renderer.NewStyle().Foreground(lipgloss.ANSIColor(5)),
		good:    renderer.NewStyle().Foreground(lipgloss.ANSIColor(2)),
		bad:     renderer.NewStyle().Foreground(lipgloss.ANSIColor(1)),
	}
}

// profile decides on colour: an explicit wish, NO_COLOR, CLICOLOR_FORCE, TERM=dumb,
// then whether the stream is a terminal.
func profile(stream io.Writer, env Environment) termenv.Profile {
	getenv := env.getenv
	switch {
	case env.Color == "always":
		return termenv.ANSI
	case env.Color == "never", getenv("NO_COLOR") != "":
		return termenv.Ascii
	case getenv("CLICOLOR_FORCE") != "" && getenv("CLICOLOR_FORCE") != "0":
		return termenv.ANSI
	case getenv("TERM") == "dumb", !IsTerminal(stream):
		return termenv.Ascii
	}
	return termenv.ANSI
}

// Printable replaces what a terminal would act on: control characters, and the
// invisible ones that turn text around. Drivers and guests are not trusted with it.
func Printable(text string) string {
	clean := func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x2028, r == 0x2029:
			return '\uFFFD'
		}
		return r
	}
	return strings.Map(clean, strings.ToValidUTF8(text, "\uFFFD"))
}
