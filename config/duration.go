package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var errDuration = errors.New("must be a time such as 500ms, 1.5s, 10m or a bare number")

// parseDuration reads a Go duration, or a bare number, fractions included, of unit.
func parseDuration(s string, unit time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		d := n * float64(unit)
		if math.IsNaN(d) || d < 0 || d >= math.MaxInt64 {
			return 0, errDuration
		}
		return time.Duration(math.Round(d)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, errDuration
	}
	return d, nil
}

// formatDuration writes 10m rather than 10m0s; parseDuration reads it back.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
