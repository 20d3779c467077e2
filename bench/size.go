package bench

import (
	"math"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
)

// Size is a number of bytes that prints like 1.75MiB. It implements pflag.Value.
type Size int64

// sizeUnits from the largest; the last has no suffix.
var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// maxSize keeps sizes far from where floating point is no longer exact.
const maxSize = 1 << 50

// ParseSize reads a number of bytes: 8, 4KiB, 1.75MiB. Fractions must come out even.
func ParseSize(text string) (Size, error) {
	if whole, err := config.ParseBytes(text); err == nil && whole <= maxSize {
		return Size(whole), nil
	}
	trimmed := strings.TrimSpace(text)
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(trimmed, u.suffix)
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		bytes := value * u.bytes
		if err != nil || math.IsNaN(bytes) || bytes < 0 || bytes > maxSize {
			break
		}
		if bytes != math.Trunc(bytes) {
			return 0, errs.Invalid("size %q is no whole number of bytes", text)
		}
		return Size(bytes), nil
	}
	return 0, errs.Invalid("size %q cannot be read: write 8, 4KiB or 1.75MiB", text)
}

// String writes the size with the largest unit that needs at most two decimals.
func (s Size) String() string {
	for _, u := range sizeUnits {
		hundredths := float64(s) * 100 / u.bytes
		if float64(s) >= u.bytes && hundredths == math.Trunc(hundredths) {
			return strconv.FormatFloat(float64(s)/u.bytes, 'f', -1, 64) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Set is ParseSize, for flags.
func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// Type is the placeholder of the flag's value in a help text.
func (*Size) Type() string { return "size" }
