package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// fixtureCase is a text with the ids that the reference implementation gave
// (testdata/make_fixture.py).
type fixtureCase struct {
	Text  string
	Small []int32
}

func readFixture(t testing.TB) []fixtureCase {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "cases.json"))
	require.NoError(t, err)
	var cases []fixtureCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.NotEmpty(t, cases)
	return cases
}

func small(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := Open(filepath.Join("testdata", "small.json"))
	require.NoError(t, err)
	return tok
}

func TestEncodeEqualsReference(t *testing.T) {
	tok := small(t)
	for _, c := range readFixture(t) {
		require.Equal(t, c.Small, tok.Encode(c.Text), "%q", c.Text)
	}
}

func TestEncodeDropsInvalidUTF8(t *testing.T) {
	tok := small(t)
	require.Equal(t, tok.Encode("hello"), tok.Encode("he\xffllo"))
}

func TestEncodeStopsAtLimit(t *testing.T) {
	tok := small(t)
	ids := tok.Encode(strings.Repeat("word ", 500))
	require.Len(t, ids, tok.Limit())
	require.Equal(t, tok.after[0], ids[len(ids)-1], "the end token survives the cut")
}

// edit changes one thing in the good file.
func edit(t *testing.T, change func(root map[string]any)) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "small.json"))
	require.NoError(t, err)
	var root map[string]any
	require.NoError(t, json.Unmarshal(raw, &root))
	change(root)
	raw, err = json.Marshal(root)
	require.NoError(t, err)
	return raw
}

func object(v any, path ...string) map[string]any {
	for _, p := range path {
		v = v.(map[string]any)[p]
	}
	return v.(map[string]any)
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(root map[string]any)
		want   string
	}{
		"other model":         {func(r map[string]any) { object(r, "model")["type"] = "BPE" }, "WordPiece"},
		"other normalizer":    {func(r map[string]any) { object(r, "normalizer")["type"] = "NFC" }, "BertNormalizer"},
		"other pre-tokenizer": {func(r map[string]any) { r["pre_tokenizer"] = nil }, "BertPreTokenizer"},
		"other template":      {func(r map[string]any) { object(r, "post_processor")["type"] = "x" }, "TemplateProcessing"},
		"no sequence":         {func(r map[string]any) { object(r, "post_processor")["single"] = []any{} }, "no sequence"},
		"two sequences": {func(r map[string]any) {
			s := map[string]any{"Sequence": map[string]any{"id": "A"}}
			object(r, "post_processor")["single"] = []any{s, s}
		}, "one sequence"},
		"no unknown token":     {func(r map[string]any) { object(r, "model")["unk_token"] = "[X]" }, "unknown token"},
		"no prefix":            {func(r map[string]any) { object(r, "model")["continuing_subword_prefix"] = "" }, "unusable"},
		"id out of range":      {func(r map[string]any) { object(r, "model", "vocab")["a"] = 1 << 20 }, "outside"},
		"special out of range": {func(r map[string]any) { r["added_tokens"].([]any)[0].(map[string]any)["id"] = -1 }, "outside"},
		"special with options": {func(r map[string]any) { r["added_tokens"].([]any)[0].(map[string]any)["lstrip"] = true }, "not understood"},
		"no room":              {func(r map[string]any) { object(r, "truncation")["max_length"] = 1 }, "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(edit(t, c.change))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Parse([]byte("{"))
	require.ErrorContains(t, err, "not a tokenizer.json")
}

func TestNormalizerOptions(t *testing.T) {
	no := false
	const text = "É İ中\u00a0A"
	for want, n := range map[string]normalizer{
		"e i 中  a":          {CleanText: true, Chinese: true, Lowercase: true},
		"é i\u0307中\u00a0a": {Lowercase: true, StripAccents: &no},
		text:                {},
	} {
		require.Equal(t, want, n.apply(text))
	}
}

func FuzzEncode(f *testing.F) {
	for _, c := range readFixture(f) {
		f.Add(c.Text)
	}
	tok := small(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text)
		require.GreaterOrEqual(t, len(ids), len(tok.before)+len(tok.after))
		require.LessOrEqual(t, len(ids), tok.Limit())
		for _, id := range ids {
			require.True(t, id >= 0 && int(id) < tok.VocabSize(), "id %d", id)
		}
		if utf8.ValidString(text) && !strings.ContainsRune(text, '[') {
			require.Equal(t, ids, tok.Encode(" "+text+"\t"), "white space around a text changes nothing")
		}
	})
}

func FuzzParse(f *testing.F) {
	raw, err := os.ReadFile(filepath.Join("testdata", "small.json"))
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"model":{"type":"WordPiece","vocab":{"[UNK]":0}}}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if tok, err := Parse(raw); err == nil {
			tok.Encode("Hello, [MASK] world")
		}
	})
}
