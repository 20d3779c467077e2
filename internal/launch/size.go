package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// maxNodes is the most nodes of one role that config accepts.
const maxNodes = 1_000_000

// Size is the number of worker and server nodes. It implements pflag.Value.
type Size struct{ Workers, Servers int }

// ParseSize reads counts with their letters: 2w2s, 8w, 4s2w. A letter without a
// count means one. The error says what is wrong and what to write.
func ParseSize(size string) (Size, error) {
	var s Size
	if size == "" {
		return s, errors.New("is empty: write counts of workers and servers, like 2w2s")
	}
	seen := map[byte]bool{}
	for rest := size; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := count(rest[:digits])
		if err != nil {
			return Size{}, err
		}
		if rest, err = s.set(n, rest[:digits], rest[digits:], seen); err != nil {
			return Size{}, err
		}
	}
	if s.Workers+s.Servers == 0 {
		return s, errors.New("has no nodes: write at least 1w or 1s")
	}
	return s, nil
}

// count reads digits; none mean one.
func count(digits string) (int, error) {
	if digits == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > maxNodes {
		return 0, fmt.Errorf("%s are too many: there can be up to %d of each role", text.Cut(digits), maxNodes)
	}
	return n, nil
}

// set gives n to the role whose letter begins rest, and returns what follows it.
func (s *Size) set(n int, digits, rest string, seen map[byte]bool) (string, error) {
	if rest == "" {
		return "", fmt.Errorf("%s of what? Write %[1]sw for workers or %[1]ss for servers", text.Cut(digits))
	}
	letter := rest[0]
	if seen[letter] {
		return "", fmt.Errorf("has the letter %c twice: write each role once, like 2w2s", letter)
	}
	seen[letter] = true
	switch letter {
	case 'w':
		s.Workers = n
	case 's':
		s.Servers = n
	default:
		return "", fmt.Errorf("%q is not a count with w (workers) or s (servers): write it like 2w2s", text.Cut(digits+rest))
	}
	return rest[1:], nil
}

// String writes the size as ParseSize reads it.
func (s Size) String() string {
	var b strings.Builder
	if s.Workers > 0 {
		fmt.Fprintf(&b, "%dw", s.Workers)
	}
	if s.Servers > 0 {
		fmt.Fprintf(&b, "%ds", s.Servers)
	}
	return b.String()
}

// Set is ParseSize, for flags.
func (s *Size) Set(list string) error {
	parsed, err := ParseSize(list)
	if err == nil {
		*s = parsed
	}
	return err
}

// Type is the placeholder of the flag's value in a help text.
func (s *Size) Type() string { return "SIZE" }
