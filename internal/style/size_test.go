package style

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ceilings are the types that are too large. No type may join them, and none of them may grow.
var ceilings = map[string]size{}

func TestNoTypeIsTooLarge(t *testing.T) {
	files, err := read("../..")
	require.NoError(t, err)
	found := sizes(files)
	require.Greater(t, len(found), 300, "too few types were found to say anything")
	for _, complaint := range tooLarge(found, ceilings) {
		t.Error(complaint)
	}
}

func source(t *testing.T, path, text string) file {
	t.Helper()
	f, err := newFile(path, text)
	require.NoError(t, err)
	return f
}

func TestSizesCountWhatBelongsToAType(t *testing.T) {
	files := []file{
		source(t, "a/a.go", `package a
import "github.com/stepvan/stepvan/b"
type T struct { x, y int; b.Base; *own }
type own struct { z int }
type I interface { F(); G() }
type alias = T
func (T) one() {}
func (t *T) two() {}
func (*own) three() {}
func four(t *T, n int) {}
func five(n int, t *T) {}
func New() *T { return nil }
`),
		source(t, "a/a_test.go", "package a\nfunc (T) test() {}\n"),
		source(t, "b/b.go", "package b\ntype Base struct { p, q int }\nfunc (Base) Six() {}\n"),
	}
	require.Equal(t, map[string]size{
		"a.T":    {fields: 7, methods: 5},
		"a.own":  {fields: 1, methods: 1},
		"a.I":    {methods: 2},
		"b.Base": {fields: 2, methods: 1},
	}, sizes(files))
}

func TestCeilingsMayOnlyFall(t *testing.T) {
	large := size{fields: maxFields + 1, methods: 3}
	for name, c := range map[string]struct {
		found    map[string]size
		ceilings map[string]size
		want     string
	}{
		"small":            {found: map[string]size{"a.T": {fields: maxFields, methods: maxMethods}}},
		"too many fields":  {found: map[string]size{"a.T": large}, want: "split it"},
		"too many methods": {found: map[string]size{"a.T": {methods: maxMethods + 1}}, want: "split it"},
		"known":            {found: map[string]size{"a.T": large}, ceilings: map[string]size{"a.T": large}},
		"exempt":           {found: map[string]size{"ps.Node": large}},
		"grew":             {found: map[string]size{"a.T": {fields: 40}}, ceilings: map[string]size{"a.T": large}, want: "grew"},
		"fell":             {found: map[string]size{"a.T": large}, ceilings: map[string]size{"a.T": {fields: 40, methods: 3}}, want: "lower the ceiling"},
		"fell below":       {found: map[string]size{"a.T": {}}, ceilings: map[string]size{"a.T": {}}, want: "delete its ceiling"},
		"exists no more":   {ceilings: map[string]size{"a.T": large}, want: "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tooLarge(c.found, c.ceilings)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1, fmt.Sprint(got))
			require.True(t, strings.Contains(got[0], c.want), got[0])
		})
	}
}
