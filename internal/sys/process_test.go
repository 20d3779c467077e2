package sys

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A child that has ended counts until somebody takes its status.
func TestAChildIsThereUntilItIsReaped(t *testing.T) {
	program, err := exec.LookPath("true")
	require.NoError(t, err)
	require.True(t, HasNoChild())
	p, err := os.StartProcess(program, []string{"true"}, &os.ProcAttr{})
	require.NoError(t, err)
	require.False(t, HasNoChild())
	require.Eventually(t, func() bool {
		Reap(p.Pid)
		return HasNoChild()
	}, 10*time.Second, time.Millisecond)
}
