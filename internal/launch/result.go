package launch

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// MaxResult is the most that a child may write as its result, in bytes.
const MaxResult = 16 << 20

// resultFD is the descriptor of the pipe in the child.
const resultFD = 3

// ResultFile returns the pipe on which a child hands its result to Plan.Result.
// Call it once, in a child that was started with one, and close it when all is
// written. It is not passed on to programs that the child starts.
func ResultFile() (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(resultFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, errs.Invalid("descriptor %d is no pipe: this process was not started to give a result", resultFD)
	}
	unix.CloseOnExec(resultFD)
	return os.NewFile(resultFD, "result"), nil
}

// collect reads a result to its end.
func collect(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, MaxResult+1))
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if len(content) > MaxResult {
		return nil, errs.Invalid("result: more than %d MiB", MaxResult>>20)
	}
	return content, nil
}
