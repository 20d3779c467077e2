package style

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// limits are how many places still break each rule. They may only fall: to 0, where the rule binds all that is written.
var limits = map[string]int{"word": 0, "sentence": 0, "column": 0}

// STYLE_FINDINGS=folder lists all places below it.
func TestTheProseIsPlain(t *testing.T) {
	files, err := read("../..")
	require.NoError(t, err)
	counts := map[string]int{}
	for i := range files {
		for _, f := range findings(&files[i]) {
			counts[f.rule]++
			if below := os.Getenv("STYLE_FINDINGS"); below != "" && strings.HasPrefix(f.path, below) || limits[f.rule] == 0 {
				t.Log(f)
			}
		}
	}
	for rule, limit := range limits {
		switch n := counts[rule]; {
		case n > limit:
			t.Errorf("rule %s: %d places break it (want at most %d): STYLE_FINDINGS=FOLDER lists them", rule, n, limit)
		case n < limit:
			t.Errorf("rule %s: %d places break it, and the limit is %d: lower the limit", rule, n, limit)
		}
	}
}

func TestEachRuleOfProseFinds(t *testing.T) {
	long := strings.Repeat("so ", maxWords) + "end."
	fits := "So" + strings.Repeat(" so", maxWords-2) + " end."
	wide := strings.Repeat("x", maxColumns)
	for name, c := range map[string]struct {
		path, text string
		want       []string // rules
	}{
		"plain":                   {"a.go", "package a\n\n// The server answers.\n", nil},
		"a refused word":          {"a.go", "package a\n\n// Whoever waits.\n", []string{"word"}},
		"in a text":               {"a.go", "package a\n\nvar x = \"the node that goes on is here\"\n", []string{"word"}},
		"in a text of a test":     {"a_test.go", "package a\n\nvar x = \"the node that goes on is here\"\n", nil},
		"in a document":           {"a.md", "It is to be had.\n", []string{"word"}},
		"in a table":              {"a.md", "| a | it goes on |\n", []string{"word"}},
		"in code of a document":   {"a.md", "```\ngoes on\n```\n\n    goes on\n", nil},
		"in a span of code":       {"a.md", "The word `goes on` is refused.\n", nil},
		"in C":                    {"a.h", "int x; /* it lets go */\n", []string{"word"}},
		"in Python":               {"a.py", "def f():\n    \"\"\"It goes on.\"\"\"\n", []string{"word"}},
		"in a text of Python":     {"a.py", "program = \"\"\"\nIt goes on.\n\"\"\"\n", nil},
		"in a script":             {"a.sh", "# but for this\n", []string{"word"}},
		"is no":                   {"a.md", "This is no program.\n", []string{"word"}},
		"there is no":             {"a.md", "There is no program.\n", nil},
		"an odd word in a name":   {"a.go", "package a\n\nfunc begForCredit() {}\n", []string{"word"}},
		"an odd name of a field":  {"a.go", "package a\n\ntype t struct{ heirs int }\n", []string{"word"}},
		"an odd word in prose":    {"a.md", "The listener knocks.\n", []string{"word"}},
		"a misleading name":       {"a.go", "package a\n\nfunc told() {}\n", []string{"word"}},
		"its word in prose":       {"a.go", "package a\n\n// The peer was told.\nfunc tellPeer() {}\n", nil},
		"a struct tag":            {"a.go", "package a\n\ntype t struct {\n\tx int `name:\"x\" doc:\"The node that goes on.\"`\n}\n", []string{"word"}},
		"a long sentence":         {"a.go", "package a\n\n// " + long + "\n", []string{"sentence"}},
		"a sentence that fits":    {"a.go", "package a\n\n// " + fits + "\n// " + fits + "\n", nil},
		"two lines, one sentence": {"a.md", strings.Replace(long, "so so", "so\nso", 1), []string{"sentence"}},
		"list items":              {"a.md", "- " + fits[:len(fits)-1] + "\n- " + fits + "\n", nil},
		"a wide line":             {"a.go", "package a\n\n// " + wide + "\n", []string{"column"}},
		"a wide table":            {"a.md", "| " + wide + " |\n", nil},
		"an address":              {"a.md", "See https://example.org/" + wide + "\n", nil},
		"output of an example":    {"a_test.go", "package a\n\n// Output:\n// " + wide + "\n", nil},
		"a directive":             {"a.go", "package a\n\n//nolint:gosec // " + wide + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := source(t, c.path, c.text)
			var got []string
			for _, x := range findings(&f) {
				got = append(got, x.rule)
			}
			require.Equal(t, c.want, got)
		})
	}
}
