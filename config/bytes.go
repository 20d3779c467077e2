package config

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// Bytes is a size in bytes. It prints with the largest binary suffix that divides it.
type Bytes int64

// String writes the size so that ParseBytes reads it back: 1MiB, 1536KiB, 17.
func (b Bytes) String() string {
	for _, u := range text.ByteUnits {
		if n := int64(b); n != 0 && n%u.Bytes == 0 {
			return strconv.FormatInt(n/u.Bytes, 10) + u.Suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

var errBytes = errors.New("must be a size such as 65536, 64KiB, 16MiB or 2GiB")

// ParseBytes reads a whole number of bytes with an optional suffix: B, KiB, MiB,
// GiB, TiB, or K, M, G, T, which mean the same (1024-based). KB, MB and GB are
// refused, because people disagree about them.
func ParseBytes(s string) (Bytes, error) {
	digits := strings.TrimRight(s, "BIKMGTbikmgt")
	factor, ok := byteFactor(strings.ToLower(s[len(digits):]))
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !ok || n < 0 || n > math.MaxInt64/int64(factor) {
		return 0, errBytes
	}
	return Bytes(n) * factor, nil
}

func byteFactor(suffix string) (Bytes, bool) {
	if suffix == "" || suffix == "b" {
		return 1, true
	}
	for _, u := range text.ByteUnits {
		whole := strings.ToLower(u.Suffix)
		if suffix == whole || suffix == whole[:1] {
			return Bytes(u.Bytes), true
		}
	}
	return 1, false
}
