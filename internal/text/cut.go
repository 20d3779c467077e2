package text

import (
	"fmt"
	"unicode/utf8"
)

// longest is how much of a text an error quotes, in bytes.
const longest = 200

// Cut returns what an error quotes of s: all of it, or its beginning and how many bytes it has.
func Cut(s string) string {
	if len(s) <= longest {
		return s
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:end], len(s))
}
