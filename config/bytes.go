package config

import (
	"errors"
	"math/big"
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

var errBytes = errors.New("must be a size in whole bytes, such as 65536, 64KiB or 1.5GiB")

// ParseBytes reads a number with an optional suffix: B, KiB, MiB, GiB, TiB, or K, M, G, T,
// which mean the same (1024-based). A decimal fraction must give a whole number of bytes. KB,
// MB and GB are refused, because people disagree about them.
func ParseBytes(s string) (Bytes, error) {
	s = strings.TrimSpace(s)
	number := strings.TrimRight(s, "BIKMGTbikmgt")
	factor, known := byteFactor(strings.ToLower(s[len(number):]))
	number = strings.TrimSpace(number)
	decimal := strings.Trim(number, "0123456789.") == ""
	n, ok := new(big.Rat).SetString(number)
	if !known || !decimal || !ok {
		return 0, errBytes
	}
	n.Mul(n, new(big.Rat).SetInt64(factor))
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, errBytes
	}
	return Bytes(n.Num().Int64()), nil
}

func byteFactor(suffix string) (int64, bool) {
	if suffix == "" || suffix == "b" {
		return 1, true
	}
	for _, u := range text.ByteUnits {
		whole := strings.ToLower(u.Suffix)
		if suffix == whole || suffix == whole[:1] {
			return u.Bytes, true
		}
	}
	return 0, false
}
