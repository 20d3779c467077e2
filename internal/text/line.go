package text

import (
	"strings"
	"unicode"
)

// Line makes text of a peer fit for a log or a terminal: one line of at most limit bytes, without control characters.
func Line(s string, limit int) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), limit)], "?"))
}
