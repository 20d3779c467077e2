package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer is BertNormalizer: clean, space out ideographs, strip accents, lower.
type normalizer struct {
	Type         string `json:"type"`
	CleanText    bool   `json:"clean_text"`
	Chinese      bool   `json:"handle_chinese_chars"`
	StripAccents *bool  `json:"strip_accents"` // when absent: as Lowercase
	Lowercase    bool   `json:"lowercase"`
}

func (n *normalizer) apply(text string) string {
	text = n.clean(text)
	if n.stripsAccents() {
		text = stripAccents(text)
	}
	if n.Lowercase {
		text = lower(text)
	}
	return text
}

func (n *normalizer) stripsAccents() bool {
	if n.StripAccents != nil {
		return *n.StripAccents
	}
	return n.Lowercase
}

// clean drops control characters, makes every white space a space, and puts
// spaces around ideographs, in one pass.
func (n *normalizer) clean(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for _, r := range text {
		switch {
		case n.CleanText && isDropped(r):
		case n.CleanText && unicode.IsSpace(r):
			out.WriteByte(' ')
		case n.Chinese && isIdeograph(r):
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// isDropped: nul, the replacement character, and the categories Cc, Cf and Co except the three
// control characters that count as white space.
func isDropped(r rune) bool {
	switch r {
	case 0, utf8.RuneError:
		return true
	case '\t', '\n', '\r':
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// isIdeograph has the ranges of the original BERT code. (The library's fifth
// begins at 2B920, not at 2B820 where the block does.)
func isIdeograph(r rune) bool {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF,
		r >= 0x20000 && r <= 0x2A6DF, r >= 0x2A700 && r <= 0x2B73F,
		r >= 0x2B740 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF,
		r >= 0xF900 && r <= 0xFAFF, r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}

func stripAccents(text string) string {
	if isASCII(text) {
		return text
	}
	drop := func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}
	return strings.Map(drop, norm.NFD.String(text))
}

// lower is strings.ToLower, except for the one character whose full lower case is two characters.
func lower(text string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == 'İ' {
			return r
		}
		return unicode.ToLower(r)
	}, text), "İ", "i\u0307")
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
