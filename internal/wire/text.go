package wire

import "strings"

// MaxText is the length in bytes to which a text for the peer is cut.
const MaxText = 1024

// AppendText appends the text of an error for the peer (FlagError), cut to MaxText.
func AppendText(b []byte, text string) []byte {
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "")
	}
	return append(b, text...)
}

// Text reads a peer's text: at most MaxText bytes, without control characters, which could disturb a terminal or a log.
func Text(meta []byte) string {
	if len(meta) > MaxText {
		meta = meta[:MaxText]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(meta), "?"))
}
