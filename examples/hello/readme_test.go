package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows these programs; they must be these.
func TestReadmeShowsThesePrograms(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(program), "func main()")
	body, _, _ = strings.Cut(body, "\nfunc check(")
	require.Contains(t, string(readme), "func main()"+body)
	python, err := os.ReadFile("hello.py")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```python\n"+string(python)+"```")
}
