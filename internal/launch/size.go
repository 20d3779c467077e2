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

// Size is the number of worker, server and peer nodes. It implements pflag.Value.
type Size struct{ Workers, Servers, Peers int }

// ParseSize reads counts with their letters: 2w2s, 8w, 4s2w, 4p, 2w2s4p. A letter
// without a count means one. The error says what is wrong and what to write.
func ParseSize(size string) (Size, error) {
	if size == "" {
		return Size{}, errors.New("is empty: write counts of workers and servers, like 2w2s, or of peers, like 4p")
	}
	var s Size
	counts := map[byte]*int{'w': &s.Workers, 's': &s.Servers, 'p': &s.Peers}
	seen := ""
	for rest := size; rest != ""; {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		n, err := count(digits)
		if err != nil {
			return Size{}, err
		}
		letter := strings.TrimPrefix(rest, digits)
		switch {
		case letter == "":
			return Size{}, fmt.Errorf("%s of what? Write %[1]sw for workers, %[1]ss for servers or %[1]sp for peers", text.Cut(digits))
		case strings.ContainsRune(seen, rune(letter[0])):
			return Size{}, fmt.Errorf("has the letter %c twice: write each role once, like 2w2s", letter[0])
		case counts[letter[0]] == nil:
			return Size{}, fmt.Errorf("%q is not a count with w (workers), s (servers) or p (peers): write it like 2w2s or 4p", text.Cut(rest))
		}
		*counts[letter[0]] = n
		seen, rest = seen+letter[:1], letter[1:]
	}
	if s.Workers+s.Servers+s.Peers == 0 {
		return s, errors.New("has no nodes: write at least 1w, 1s or 1p")
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

// String writes the size as ParseSize reads it.
func (s Size) String() string {
	var b strings.Builder
	for _, role := range []struct {
		nodes  int
		letter byte
	}{{s.Workers, 'w'}, {s.Servers, 's'}, {s.Peers, 'p'}} {
		if role.nodes > 0 {
			fmt.Fprintf(&b, "%d%c", role.nodes, role.letter)
		}
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
