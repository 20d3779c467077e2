package trace

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// micros is a time in ns that the file format wants in us. It is written as a
// decimal with three places, so that no ns is lost to floating point.
type micros int64

var errMicros = errors.New("a time must be a decimal number of us from 0, with at most three places")

// MarshalJSON writes us.
func (m micros) MarshalJSON() ([]byte, error) {
	b := strconv.AppendInt(nil, int64(m)/1000, 10)
	ns := int64(m) % 1000
	return append(b, '.', byte('0'+ns/100), byte('0'+ns/10%10), byte('0'+ns%10)), nil
}

// UnmarshalJSON reads what MarshalJSON writes; fewer places are accepted too.
func (m *micros) UnmarshalJSON(b []byte) error {
	whole, part, _ := strings.Cut(string(b), ".")
	if len(part) > 3 {
		return errMicros
	}
	us, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || us > math.MaxInt64/1000-1 {
		return errMicros
	}
	ns, err := strconv.ParseUint((part + "000")[:3], 10, 16)
	if err != nil {
		return errMicros
	}
	*m = micros(us*1000 + ns)
	return nil
}
