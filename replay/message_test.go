package replay

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

var update = flag.Bool("update", false, "write testdata/messages.json")

// vector is a message as both languages make and read it. The tests of Python read the same file.
type vector struct {
	Kind   string            `json:"kind"`
	Fields map[string]uint64 `json:"fields"`
	Text   string            `json:"text,omitempty"`
	Bytes  string            `json:"bytes"`
}

type vectors struct {
	Messages []vector            `json:"messages"`
	Picks    map[string][]uint64 `json:"picks"` // seed, size, then the picks of the first rows
}

func ownVectors() vectors {
	a := ask{
		head: head{kindAsk, picksTorch, tensor.Float32, 0x1122334455667788, 3, 4},
		seed: 1<<63 + 5, least: 6, slot: 1, width: 100, count: 8192, first: 1024, rows: 512,
	}
	for i := range a.token {
		a.token[i] = byte(i + 1)
	}
	n := answer(&a)
	n.written, n.held = 1<<40, 50
	tell := func(k messageKind) []byte { return (&head{kind: k, ring: 7, tick: 8, attempt: 9}).append(nil) }
	plain := map[string]uint64{"ring": 7, "tick": 8, "attempt": 9}
	of := head{ring: 7, tick: 8, attempt: 9}
	v := vectors{Messages: []vector{
		{"ask", map[string]uint64{"picks": 1, "dtype": uint64(tensor.Float32), "ring": a.ring, "tick": 3, "attempt": 4, "seed": a.seed, "least": 6, "slot": 1, "width": 100, "count": 8192, "first": 1024, "rows": 512}, "", hex.EncodeToString(a.append(nil))},
		{"note", map[string]uint64{"ring": a.ring, "tick": 3, "attempt": 4, "slot": 1, "first": 1024, "rows": 512, "written": 1 << 40, "held": 50}, "", hex.EncodeToString(n.append(nil))},
		{"end", plain, "", hex.EncodeToString(tell(kindEnd))},
		{"ping", plain, "", hex.EncodeToString(tell(kindPing))},
		{"leave", plain, "", hex.EncodeToString(tell(kindLeave))},
		{"open", plain, "", hex.EncodeToString(tell(kindOpen))},
		{"join", plain, "", hex.EncodeToString(tell(kindJoin))},
		{"refusal", plain, "the rows differ", hex.EncodeToString(appendRefusal(nil, of, "the rows differ"))},
	}, Picks: map[string][]uint64{}}
	for name, c := range map[string][2]uint64{"small": {1, 50}, "one": {0, 1}, "large": {1<<64 - 1, 1<<32 - 1}, "usual": {1003, 100_000}} {
		list := []uint64{c[0], c[1]}
		for i := range uint64(20) {
			list = append(list, Pick(c[0], i, c[1]))
		}
		v.Picks[name] = list
	}
	return v
}

// The messages are those that the file has, which Python reads too.
func TestMessagesAreTheDocumentedOnes(t *testing.T) {
	const path = "testdata/messages.json"
	got, err := json.MarshalIndent(ownVectors(), "", "\t")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got)+"\n")
}

func FuzzMessages(f *testing.F) {
	for _, m := range ownVectors().Messages {
		b, err := hex.DecodeString(m.Bytes)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		switch h.kind {
		case kindAsk:
			if a, err := parseAsk(h, b); err == nil {
				require.Equal(t, b, a.append(nil))
				require.LessOrEqual(t, a.first+a.rows, a.count)
			}
		case kindNote:
			if n, err := parseNote(h, b); err == nil {
				copy(b[36:40], make([]byte, 4))
				require.Equal(t, b, n.append(nil))
				p := &pack{}
				p.divide(100, []stepvan.Rank{0, 1})
				before := p.left
				if err := p.take(1, &n); err == nil {
					require.Equal(t, before-int64(n.rows), p.left)
				}
			}
		case kindRefusal:
			require.NotEmpty(t, refusalText(b))
		}
	})
}
