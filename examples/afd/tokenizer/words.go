package tokenizer

import (
	"iter"
	"unicode"
	"unicode/utf8"
)

// splitWords yields the words of normalised text: cut at white space, with every
// punctuation character a word of its own.
func splitWords(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := 0
		for at, r := range text {
			space, punct := unicode.IsSpace(r), isPunctuation(r)
			if !space && !punct {
				continue
			}
			if start < at && !yield(text[start:at]) {
				return
			}
			end := at + utf8.RuneLen(r)
			if punct && !yield(text[at:end]) {
				return
			}
			start = end
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

// isPunctuation counts ASCII's symbols as punctuation too, as BERT does.
func isPunctuation(r rune) bool {
	switch {
	case r >= '!' && r <= '/', r >= ':' && r <= '@', r >= '[' && r <= '`', r >= '{' && r <= '~':
		return true
	}
	return r >= utf8.RuneSelf && unicode.Is(unicode.P, r)
}
