package style

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatTheDocumentsNameExists(t *testing.T) {
	files, err := read("../..")
	require.NoError(t, err)
	for _, name := range []string{"ARCHITECTURE.md", "README.md", "docs/glossary.md"} {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		for _, complaint := range lost("../..", string(text), files) {
			t.Errorf("%s, %s", name, complaint)
		}
	}
}

func TestLostNamesAreFound(t *testing.T) {
	files := []file{source(t, "internal/link/session.go", "package link\ntype Session struct { Peer int }\nfunc (s *Session) Send() {}\nconst Lanes = 4\n")}
	for span, found := range map[string]bool{
		"Session": true, "link.Session": true, "link.(*Session).Send": true, "Session.Peer": true, "Lanes": true, "Session.Send()": true,
		"session.go": true, "internal/style": true, "internal/style/doc.go": true, "internal/link.Session": true,
		"make check": true, "STEPVAN_VAN": true, "STEPVAN_VAN=tcp": true, "true": true, "a b": true,
		"Sessions": false, "link.Sender": false, "link.(*Session).Drop": false, "sessions.go": false, "internal/nowhere": false,
		"make nothing": false, "STEPVAN_NOTHING": false, "internal/link.Sender": false,
	} {
		got := lost("../..", "It has `"+span+"`.\n```\n`Nothing`\n```\n", files)
		if found {
			require.Empty(t, got, span)
		} else {
			require.Len(t, got, 1, span)
		}
	}
}
