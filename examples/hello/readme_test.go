package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows these programs; they must be these.
func TestReadmeShowsThesePrograms(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```")
	python, err := os.ReadFile("hello.py")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```python\n"+string(python)+"```")
	require.LessOrEqual(t, bytes.Count(readme, []byte("\n")), 120, "the first page is short")
}
