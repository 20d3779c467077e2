package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// CommandError says that a program cannot run, and what to write instead. Nothing was started.
type CommandError struct {
	Role    stepvan.Role
	Program string // as the caller wrote it
	Reason  string
	Err     error // of exec.LookPath
}

// Error names the program before the reason.
func (e *CommandError) Error() string {
	return fmt.Sprintf("the %s's command %q %s", e.Role, text.Cut(e.Program), e.Reason)
}

// Unwrap returns the error of the search for the program.
func (e *CommandError) Unwrap() error { return e.Err }

// Program is the command line that runs stepvan, as "python3 -m stepvan" does. Nil means the
// program of this process.
type Program []string

// Command returns the command line with args behind it.
func (p Program) Command(args ...string) ([]string, error) {
	if len(p) > 0 {
		return slices.Concat(p, args), nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return append([]string{path}, args...), nil
}

// resolve finds the program of a command.
func resolve(role stepvan.Role, command []string, dir string) (string, error) {
	if len(command) == 0 || command[0] == "" {
		return "", &CommandError{Role: role, Reason: "is empty: write the program and its arguments", Err: exec.ErrNotFound}
	}
	name := command[0]
	if dir != "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &CommandError{Role: role, Program: command[0], Reason: whyNot(command, name, err), Err: err}
	}
	return path, nil
}

// whyNot says why a program cannot run, and what the user perhaps meant.
func whyNot(command []string, name string, err error) string {
	info, statErr := os.Stat(name)
	switch {
	case statErr == nil && info.IsDir():
		return "is a folder: write the program in it"
	case errors.Is(err, fs.ErrPermission):
		return "is not executable: chmod +x " + text.Cut(name) + ", or write the program that runs it before it"
	case strings.Contains(name, "/"):
		return "does not exist"
	case statErr == nil:
		return "is not in PATH, but there is such a file here: write ./" + text.Cut(name)
	case len(command) == 1 && strings.ContainsAny(name, " \t|;&"):
		return "is not in PATH: write program and arguments as words of their own, or sh -c '...' for a line of shell"
	}
	return "is not in PATH: correct it, or write the whole path"
}
