package refit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
)

// Memory says what the processes can see of each other's models.
type Memory string

// The memories.
const (
	Shared       Memory = "shared"       // all models are in memory files
	Sources      Memory = "sources"      // only those of the sources are
	Destinations Memory = "destinations" // only those of the destinations are
	One          Memory = "one"          // only one side's are: another word for Destinations
	Torch        Memory = "torch"        // none is: the models are private, as torch allocates them
)

// Memories lists them all.
var Memories = []Memory{Shared, Sources, Destinations, One, Torch}

// InFile reports whether the model of a side is in a memory file.
func (m Memory) InFile(destination bool) bool {
	return m == Shared || m == Sources && !destination || m == Destinations && destination
}

// Spec is what both sides must agree on. The zero value of a field is its default.
type Spec struct {
	From   Layout `json:"from,omitzero"`    // tp4
	To     Layout `json:"to,omitzero"`      // tp2ep2
	Bytes  int64  `json:"bytes,omitempty"`  // of the model; 1 GiB
	Dim    int    `json:"dim,omitempty"`    // along which matrices are divided: 0 rows, 1 columns
	Row    int64  `json:"row,omitempty"`    // bytes that lie side by side on both sides with Dim 1; 2 KiB
	Memory Memory `json:"memory,omitempty"` // shared
	Moves  int    `json:"moves,omitempty"`  // that many moves of MoveBytes in place of a model; 0: a model
	Pair   bool   `json:"pair,omitempty"`   // only the first source and the first destination take part
}

const (
	defaultBytes = 1 << 30
	defaultRow   = 2 << 10
	elementBytes = 2       // of a bfloat16
	matrixBytes  = 8 << 20 // of a matrix of a large model
	dense        = 2       // dense matrices of a layer
	expertsEach  = 4       // experts of a layer that the rank of an expert parallel group has at least

	// MoveBytes is the size of a move with [Spec.Moves].
	MoveBytes = 8

	maxBytes = 1 << 40
	maxMoves = 1 << 20
)

// SetDefaults sets what is zero to its default.
func (s *Spec) SetDefaults() {
	if s.From == (Layout{}) {
		s.From = Layout{4, 1, 1}
	}
	if s.To == (Layout{}) {
		s.To = Layout{2, 2, 1}
		if s.Moves > 0 {
			s.To = Layout{1, 1, 2}
		}
	}
	if s.Bytes == 0 && s.Moves == 0 {
		s.Bytes = defaultBytes
	}
	if s.Row == 0 && s.Moves == 0 {
		s.Row = defaultRow
	}
	switch s.Memory {
	case "":
		s.Memory = Shared
	case One:
		s.Memory = Destinations
	}
}

// Check lists the mistakes of a Spec with its defaults, in the words of the flags.
func (s *Spec) Check() (mistakes []error) {
	refuse := func(mistake bool, format string, args ...any) {
		if mistake {
			mistakes = append(mistakes, errs.Invalid(format, args...))
		}
	}
	refuse(!slices.Contains(Memories, s.Memory), "--memory %q is unknown: write shared, sources, destinations, one or torch", s.Memory)
	refuse(s.Dim != 0 && s.Dim != 1, "--dim is out of range (got %d, want 0 or 1)", s.Dim)
	refuse(s.Moves < 0 || s.Moves > maxMoves, "--moves is out of range (got %d, want 0 to %d)", s.Moves, maxMoves)
	if s.Moves > 0 {
		refuse(s.Bytes != 0, "--bytes does not go with --moves, which says how much moves: leave one of them out")
		refuse(s.Row != 0 || s.Dim != 0, "--rows and --dim do not go with --moves, whose parameters are vectors: leave them out")
		refuse(s.From.Expert > 1 || s.To.Expert > 1, "--moves has no experts (got %s to %s): write layouts like tp4 and dp2", s.From, s.To)
		refuse(s.From.Tensor%s.To.Tensor != 0, "--moves needs --from tp%d to be a multiple of --to tp%d: choose other layouts", s.From.Tensor, s.To.Tensor)
		return mistakes
	}
	least := s.columns() * s.rowUnit() * elementBytes * int64(s.matricesOfLayer())
	refuse(s.Row < elementBytes || s.Row%elementBytes != 0 || s.Row > 1<<20, "--rows is out of range (got %d bytes, want an even number up to 1 MiB)", s.Row)
	refuse(s.Bytes < least || s.Bytes > maxBytes, "--bytes is out of range (got %d, want at least %d, which is one row for each rank)", s.Bytes, least)
	return mistakes
}

// String names the Spec, without the defaults of what rarely differs.
func (s *Spec) String() string {
	words := []string{s.From.String(), "to", s.To.String()}
	if s.Moves > 0 {
		words = append(words, fmt.Sprint(s.Moves), "moves")
	} else {
		words = append(words, fmt.Sprint("dim ", s.Dim))
		if s.Dim == 1 {
			words = append(words, fmt.Sprint("rows ", s.Row))
		}
	}
	words = append(words, string(s.Memory))
	if s.Pair {
		words = append(words, "1 to 1")
	}
	return strings.Join(words, " ")
}

// Sources is how many processes send.
func (s *Spec) Sources() int { return s.side(s.From) }

// Destinations is how many processes receive.
func (s *Spec) Destinations() int { return s.side(s.To) }

func (s *Spec) side(l Layout) int {
	if s.Pair {
		return 1
	}
	return l.Ranks()
}

// multiple is the least common multiple of the ranks that divide a matrix on either side.
func (s *Spec) multiple() int64 {
	a, b := int64(s.From.Tensor), int64(s.To.Tensor)
	for b != 0 {
		a, b = b, a%b
	}
	return int64(s.From.Tensor) * int64(s.To.Tensor) / a
}

// columns of a matrix. With Dim 1 the shares of both sides have pieces of Row bytes in common.
func (s *Spec) columns() int64 { return s.Row / elementBytes * s.multiple() }

// rowUnit is what the number of rows is a multiple of.
func (s *Spec) rowUnit() int64 {
	if s.Dim == 0 {
		return s.multiple()
	}
	return 1
}

// experts of a layer; 0 where no layout divides them.
func (s *Spec) experts() int {
	if s.From.Expert == 1 && s.To.Expert == 1 {
		return 0
	}
	return expertsEach * s.From.Expert * s.To.Expert
}

func (s *Spec) matricesOfLayer() int { return dense + s.experts() }
