package work

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Times says how long a server computes before an answer. Without parts it computes nothing. The
// shares of the parts add up to 1. The JSON is what a node in Python reads, with times in ns.
type Times []Part

// Part is some of the exchanges, with times that lie evenly from Least to Most.
type Part struct {
	Share float64       `json:"share"`
	Least time.Duration `json:"least"`
	Most  time.Duration `json:"most"`
}

// maxTime is the longest time of an exchange. The limit takes longer silence for the end of its peer.
const maxTime = 10 * time.Second

// ParseTimes reads one time (100us), a range (100us-1ms), or a mixture (90%100us+10%5ms), whose
// parts may be ranges. If all times are 0, the server does not compute.
func ParseTimes(s string) (Times, error) {
	if !strings.Contains(s, "%") {
		p, err := parsePart(s, s)
		if err != nil || p.Most == 0 {
			return nil, err
		}
		p.Share = 1
		return Times{p}, nil
	}
	var times Times
	sum := 0.0
	for _, word := range strings.Split(s, "+") {
		percent, of, found := strings.Cut(word, "%")
		share, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
		if !found || err != nil || !(share > 0 && share <= 100) {
			return nil, errs.Invalid("part %q of %q has no share: write a mixture like 90%%100us+10%%5ms", text.Cut(word), text.Cut(s))
		}
		p, err := parsePart(of, s)
		if err != nil {
			return nil, err
		}
		if p.Share = share / 100; p.Share == 0 {
			return nil, errs.Invalid("the share %q of %q is too small", text.Cut(percent), text.Cut(s))
		}
		times, sum = append(times, p), sum+share
	}
	if math.Abs(sum-100) > 1e-6 {
		return nil, errs.Invalid("the shares of %q are wrong (got %.6g %%, want 100 %%): write a mixture like 90%%100us+10%%5ms", text.Cut(s), sum)
	}
	if times.most() == 0 {
		return nil, nil
	}
	return times, nil
}

// parsePart reads a time or a range, which is part of whole.
func parsePart(s, whole string) (p Part, err error) {
	least, most, isRange := strings.Cut(strings.TrimSpace(s), "-")
	if p.Least, err = parseTime(least, whole); err != nil {
		return p, err
	}
	if p.Most = p.Least; isRange {
		p.Most, err = parseTime(most, whole)
	}
	if err == nil && p.Most < p.Least {
		err = errs.Invalid("the range %q ends before it begins: write the shorter time first, like 100us-1ms", text.Cut(s))
	}
	return p, err
}

func parseTime(s, whole string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, errs.Invalid("time %q of %q is unknown: write 100us, 100us-1ms or 90%%100us+10%%5ms", text.Cut(s), text.Cut(whole))
	}
	if d < 0 || d > maxTime {
		return 0, errs.Invalid("time %q of %q is out of range (got %v, want 0 to %v)", text.Cut(s), text.Cut(whole), d, maxTime)
	}
	return d, nil
}

// Constant are times that are always the same.
func Constant(d time.Duration) Times { return Even(d, d) }

// Even are times that lie evenly between two.
func Even(least, most time.Duration) Times { return Times{{Share: 1, Least: least, Most: most}} }

// String writes the times as ParseTimes reads them; "0" without parts.
func (t Times) String() string {
	if len(t) == 0 {
		return "0"
	}
	var parts []string
	for _, p := range t {
		s := formatTime(p.Least)
		if p.Most > p.Least {
			s += "-" + formatTime(p.Most)
		}
		if len(t) > 1 || p.Share != 1 {
			s = strconv.FormatFloat(p.Share*100, 'g', 12, 64) + "%" + s
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "+")
}

// formatTime writes a time in ASCII.
func formatTime(d time.Duration) string { return strings.ReplaceAll(d.String(), "µ", "u") }

// Constant reports whether all exchanges have the same time, and which.
func (t Times) Constant() (time.Duration, bool) {
	if len(t) == 0 {
		return 0, true
	}
	return t[0].Least, len(t) == 1 && t[0].Least == t[0].Most
}

// most is the longest time that can be drawn.
func (t Times) most() (longest time.Duration) {
	for _, p := range t {
		longest = max(longest, p.Most)
	}
	return longest
}
