package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows this program; it must be this one.
func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(program), "func main()")
	body, _, _ = strings.Cut(body, "\nfunc check(")
	require.Contains(t, string(readme), "func main()"+body)
}
