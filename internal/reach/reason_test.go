package reach

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// Reasons are alike for peers that are alike, or a line would have a part for each of a thousand.
func TestReasonsNameNoAddress(t *testing.T) {
	const addr = "00aa11/tmp/stepvan-0/shm.7.beef"
	for want, err := range map[string]error{
		"other machine": errors.New("other machine"),
		"other user":    fmt.Errorf("other user: %w", stepvan.ErrNotSupported),
		"its socket is not to be seen from here: no such file or directory": fmt.Errorf("its socket /tmp/stepvan-0/shm.7.beef is not to be seen from here: %w", unix.ENOENT),
		"dial over shm: cannot allocate memory":                             &stepvan.OpError{Op: "dial", Van: "shm", Peer: addr, Err: unix.ENOMEM},
	} {
		require.Equal(t, want, shortReason(link.PassedOver{Address: "shm://" + addr, Err: err}))
	}
}
