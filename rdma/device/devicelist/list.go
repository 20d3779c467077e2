package devicelist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// List says which ports of which devices may be used. The zero value allows all.
type List struct {
	Exclude bool // all but those that an entry names
	Exact   bool // an entry is the whole name of a device, and not the beginning of names
	Entries []Entry
}

// Entry names a device, or several by the beginning of their names.
type Entry struct {
	Name string
	Port int // from 1; 0 is every port
}

// String reads "mlx5_0:1".
func (e Entry) String() string {
	if e.Port == 0 {
		return e.Name
	}
	return e.Name + ":" + strconv.Itoa(e.Port)
}

const (
	longestList = 4095 // bytes
	longestName = 63   // of a device, in Linux
	lastPort    = 255  // of a device
)

// form is what an error tells of the syntax.
const form = "write names or their beginnings with commas between, as in mlx5_0,mlx5_1:1; = before the list takes whole names, ^ all others"

// SyntaxError says what is wrong with the text of a list. It wraps stepvan.ErrInvalid.
type SyntaxError struct{ Reason string }

func (e *SyntaxError) Error() string { return "list of devices: " + e.Reason }

// Unwrap returns stepvan.ErrInvalid.
func (*SyntaxError) Unwrap() error { return stepvan.ErrInvalid }

func mistake(format string, args ...any) error { return &SyntaxError{fmt.Sprintf(format, args...)} }

// Parse reads a list. "mlx5" is every device whose name begins so, and "=mlx5_0:1,mlx5_1:1" has two ports. "^mlx5_3" is
// all but the devices that begin so, and "^=mlx5_3" all but one. An empty text allows all devices. The
// error is a SyntaxError.
func Parse(s string) (List, error) {
	var l List
	if len(s) > longestList {
		return l, mistake("is too long (got %d bytes, want at most %d)", len(s), longestList)
	}
	rest := strings.TrimSpace(s)
	if rest == "" {
		return l, nil
	}
	rest, l.Exclude = strings.CutPrefix(rest, "^")
	rest, l.Exact = strings.CutPrefix(rest, "=")
	for word := range strings.SplitSeq(rest, ",") {
		e, err := parseEntry(strings.TrimSpace(word))
		if err != nil {
			return List{}, err
		}
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

func parseEntry(word string) (Entry, error) {
	name, digits, hasPort := strings.Cut(word, ":")
	if name == "" || len(name) > longestName || strings.ContainsFunc(name, foreign) {
		return Entry{}, mistake("%q is not the name of a device: %s", text.Cut(word), form)
	}
	if !hasPort {
		return Entry{Name: name}, nil
	}
	port, err := strconv.Atoi(digits)
	if err != nil || port < 1 || port > lastPort || digits[0] == '+' {
		return Entry{}, mistake("the port of %q must be a number from 1 to %d: %s", text.Cut(word), lastPort, form)
	}
	return Entry{name, port}, nil
}

// foreign reports whether no name of a device has this character.
func foreign(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_-.", r)
}

// String is the text that Parse reads.
func (l List) String() string {
	var b strings.Builder
	if l.Exclude {
		b.WriteByte('^')
	}
	if l.Exact {
		b.WriteByte('=')
	}
	for i, e := range l.Entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e.String())
	}
	return b.String()
}

// Empty reports whether the list allows all devices because nobody wrote one.
func (l List) Empty() bool { return len(l.Entries) == 0 }

// Allows reports whether a port may be used.
func (l List) Allows(device string, port int) bool {
	return l.Empty() || (l.Place(device, port) >= 0) != l.Exclude
}

// Place is the index of the first entry that names the port, or -1.
func (l List) Place(device string, port int) int {
	for i, e := range l.Entries {
		if e.names(device, l.Exact) && (e.Port == 0 || e.Port == port) {
			return i
		}
	}
	return -1
}

func (e Entry) names(device string, exact bool) bool {
	if exact {
		return device == e.Name
	}
	return strings.HasPrefix(device, e.Name)
}

// Names reports whether the list names a port, so that it may be used though nobody would choose it unasked.
func (l List) Names(device string, port int) bool {
	return !l.Empty() && !l.Exclude && l.Place(device, port) >= 0
}

// Describe says in words what the list allows, for errors.
func (l List) Describe() string {
	kind := "devices whose names begin with "
	if l.Exact {
		kind = "the devices "
	}
	if l.Exclude {
		kind = "all but " + kind
	}
	names := make([]string, len(l.Entries))
	for i, e := range l.Entries {
		names[i] = e.String()
	}
	return kind + fmt.Sprint(strings.Join(names, ", "))
}
