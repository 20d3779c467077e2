package refit

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Layout says how many ranks share a model, and how. Tensor parallel ranks vary fastest, then experts, then copies.
type Layout struct {
	Tensor int // ranks that divide each matrix
	Expert int // ranks that divide the experts, and have copies of everything else
	Data   int // copies of the whole
}

var layoutForm = regexp.MustCompile(`^(?:tp([1-9][0-9]{0,3}))?(?:ep([1-9][0-9]{0,3}))?(?:dp([1-9][0-9]{0,3}))?$`)

// maxRanks bounds the processes of a side.
const maxRanks = 256

// ParseLayout reads a layout like tp4, tp2ep2 or dp2.
func ParseLayout(s string) (Layout, error) {
	found := layoutForm.FindStringSubmatch(s)
	if s == "" || found == nil {
		return Layout{}, errs.Invalid("layout %q is unknown: write one like tp4, tp2ep2 or tp2dp2", text.Cut(s))
	}
	count := func(digits string) int {
		if digits == "" {
			return 1
		}
		n, _ := strconv.Atoi(digits) // the form has only digits
		return n
	}
	l := Layout{count(found[1]), count(found[2]), count(found[3])}
	if l.Ranks() > maxRanks {
		return Layout{}, errs.Invalid("layout %q has too many ranks (got %d, want at most %d): make it smaller", text.Cut(s), l.Ranks(), maxRanks)
	}
	return l, nil
}

// Ranks is how many ranks the layout has.
func (l Layout) Ranks() int { return l.Tensor * l.Expert * l.Data }

// String is what ParseLayout reads. The zero Layout is "".
func (l Layout) String() (s string) {
	if l == (Layout{}) {
		return ""
	}
	for _, part := range []struct {
		name  string
		count int
	}{{"tp", l.Tensor}, {"ep", l.Expert}, {"dp", l.Data}} {
		if part.count > 1 {
			s += fmt.Sprint(part.name, part.count)
		}
	}
	if s == "" {
		return "tp1"
	}
	return s
}

// Set is ParseLayout, for flags.
func (l *Layout) Set(s string) (err error) {
	*l, err = ParseLayout(s)
	return err
}

// Type is the placeholder of the flag's value in a help text.
func (*Layout) Type() string { return "layout" }

// MarshalText writes the layout as String does.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Layout) UnmarshalText(s []byte) error {
	if len(s) == 0 {
		*l = Layout{}
		return nil
	}
	return l.Set(string(s))
}

// place is where a rank of the layout is.
func (l Layout) place(rank int) (tensor, expert, data int) {
	return rank % l.Tensor, rank / l.Tensor % l.Expert, rank / l.Tensor / l.Expert
}

func (l Layout) rank(tensor, expert, data int) int {
	return (data*l.Expert+expert)*l.Tensor + tensor
}
