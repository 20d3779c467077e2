package bench

import (
	"math"
	"strconv"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Size is a number of bytes that prints like 1.75MiB. It implements pflag.Value.
type Size int64

// maxSize keeps sizes far below the numbers that floating point cannot hold exactly.
const maxSize = 1 << 50

// ParseSize reads a number of bytes: 8, 4KiB, 1.75MiB.
func ParseSize(size string) (Size, error) {
	n, err := config.ParseBytes(size)
	if err != nil || n > maxSize {
		return 0, errs.Invalid("size %q is not a whole number of bytes: write one like 8, 4KiB or 1.75MiB", text.Cut(size))
	}
	return Size(n), nil
}

// String writes the size with the largest unit that needs at most two decimals.
func (s Size) String() string {
	for _, u := range text.ByteUnits {
		hundredths := float64(s) * 100 / float64(u.Bytes)
		if int64(s) >= u.Bytes && hundredths == math.Trunc(hundredths) {
			return strconv.FormatFloat(float64(s)/float64(u.Bytes), 'f', -1, 64) + u.Suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Set is ParseSize, for flags.
func (s *Size) Set(size string) (err error) {
	*s, err = ParseSize(size)
	return err
}

// Type is the placeholder of the flag's value in a help text.
func (*Size) Type() string { return "size" }
