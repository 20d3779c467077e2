package launch

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// through feeds pieces of size bytes.
func through(s *stream, text string, size int) string {
	var out strings.Builder
	for len(text) > 0 {
		n := min(size, len(text))
		out.Write(s.feed([]byte(text[:n])))
		text = text[n:]
	}
	out.Write(s.finish())
	return out.String()
}

func TestStream(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"lines", "one\ntwo\n", "a | one\na | two\n"},
		{"no end", "one\ntwo", "a | one\na | two\n"},
		{"blank line", "\n\nx\n", "a | \na | \na | x\n"},
		{"DOS", "one\r\ntwo\r\n", "a | one\na | two\n"},
		{"overwritten", "10%\r20%\r100%\ndone\n", "a | 100%\na | done\n"},
		{"overwritten, no end", "10%\r20%\r", "a | 20%\n"},
		{"exactly the limit", long + "\n", "a | " + long + "\n"},
		{"above the limit", long + "yz\n", "a | " + long + "\na + yz\n"},
		{"twice the limit, no end", long + long, "a | " + long + "\na + " + long + "\n"},
		{"a line after a long one", long + "y\nz\n", "a | " + long + "\na + y\na | z\n"},
		{"long and overwritten", "old\r" + long[4:] + "new\n", "a | " + long[4:] + "new\n"},
		{"no rune is cut", long[1:] + "é\n", "a | " + long[1:] + "\na + é\n"},
		{"bytes that are no text", long[1:] + "\xff\xff\n", "a | " + long[1:] + "\xff\na + \xff\n"},
	} {
		for _, size := range []int{1, 7, readSize, 1 << 20} {
			s := &stream{prefix: "a | ", more: "a + "}
			require.Equal(t, c.want, through(s, c.in, size), "%s in pieces of %d", c.name, size)
		}
	}
}

func TestStreamWithoutPrefixKeepsLines(t *testing.T) {
	s := &stream{}
	require.Empty(t, s.feed([]byte("half ")))
	require.Equal(t, "half a line\n", string(s.feed([]byte("a line\nnext"))))
	require.Equal(t, "next\n", string(s.finish()))
}

func TestTailKeepsTheLastWords(t *testing.T) {
	tail := &tail{}
	s := &stream{tail: tail}
	for i := range 30 {
		s.feed([]byte(strings.Repeat("i", i) + "\n\n"))
	}
	s.feed([]byte(strings.Repeat("é", tailBytes) + "\nend"))
	s.finish()
	require.Len(t, tail.lines, tailLines)
	require.Equal(t, "end", tail.lines[tailLines-1])
	require.Equal(t, strings.Repeat("é", tailBytes/2)+" ...", tail.lines[tailLines-2])
	require.Equal(t, strings.Repeat("i", 29), tail.lines[tailLines-3], "blank lines are left out")
}

func TestTailIsText(t *testing.T) {
	tail := &tail{}
	tail.add([]byte("a\xffb"))
	require.True(t, utf8.ValidString(tail.lines[0]))
}

func FuzzStream(f *testing.F) {
	f.Add("a\nb\rc\r\n", uint16(1))
	f.Add(strings.Repeat("\r0", maxLine), uint16(100))
	f.Add(strings.Repeat("é", maxLine), uint16(4095))
	f.Fuzz(func(t *testing.T, text string, size uint16) {
		whole := through(&stream{prefix: "p "}, text, len(text)+1)
		require.Equal(t, whole, through(&stream{prefix: "p "}, text, int(size)+1), "how it is read changes nothing")
		for line := range strings.Lines(whole) {
			require.True(t, strings.HasSuffix(line, "\n"))
			require.LessOrEqual(t, len(line), maxLine+len("p \n"))
		}
	})
}
