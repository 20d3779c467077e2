package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The comment of each Go half is the declaration of its function in stepvan.h.
func TestGoHalvesQuoteTheirPrototypes(t *testing.T) {
	header, err := os.ReadFile("stepvan.h")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	quoted := regexp.MustCompile(`// (go\w+) implements\n//\n((?://\t.*\n)+)//\n//export (go\w+)\n`)
	halves := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if file == "start_devices.go" {
			continue // for the tests of bindings alone
		}
		halves += strings.Count(string(source), "\n//export ")
		for _, m := range quoted.FindAllStringSubmatch(string(source), -1) {
			halves--
			require.Equal(t, m[1], m[3])
			prototype := strings.Join(strings.Fields(strings.ReplaceAll(m[2], "//\t", "")), " ")
			require.Contains(t, string(header), "\n"+prototype+"\n")
			require.Contains(t, prototype, "stepvan"+snake(strings.TrimPrefix(m[1], "go"))+"(")
		}
	}
	require.Zero(t, halves, "Go halves without a prototype")
}
