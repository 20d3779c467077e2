package wire

import (
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// MaxText is the length in bytes to which a text for the peer is cut.
const MaxText = 1024

// AppendText appends the text of an error for the peer (FlagError), cut to MaxText.
func AppendText(b []byte, why string) []byte {
	if len(why) > MaxText {
		why = strings.ToValidUTF8(why[:MaxText], "")
	}
	return append(b, why...)
}

// Text reads a peer's text: at most MaxText bytes, without control characters, which could disturb a terminal or a log.
func Text(meta []byte) string { return text.Line(string(meta[:min(len(meta), MaxText)]), MaxText) }
