package affinity

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

// supported skips a test where the kernel or a seccomp profile has no memory policies.
func supported(t *testing.T) {
	t.Helper()
	if _, err := currentPolicy(); errors.Is(err, stepvan.ErrNotSupported) {
		t.Skip(err)
	}
	if err := sys.SetMemoryPolicy(0, nil); err != nil {
		t.Skip(err)
	}
}

// Near restores the policy that the program has chosen for its thread.
func TestNearRestoresThePolicy(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	supported(t)
	defer func() { require.NoError(t, sys.SetMemoryPolicy(0, nil)) }()
	const interleave, bind, static = 3, 2, 1 << 15
	first := []uint64{1}
	for name, c := range map[string]struct {
		mode int
		mask []uint64
	}{
		"default": {0, nil}, "preferred": {policyPreferred, first}, "interleaved": {interleave, first}, "bound, with a flag": {bind | static, first},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			require.NoError(t, sys.SetMemoryPolicy(c.mode, c.mask))
			defer func() { require.NoError(t, sys.SetMemoryPolicy(0, nil)) }()
			want, err := currentPolicy()
			require.NoError(t, err)
			require.Equal(t, c.mode, want.mode)
			var within policy
			require.NoError(t, Near([]int{0}, func() { within, err = currentPolicy() }))
			require.NoError(t, err)
			require.Contains(t, []int{policyPreferred, policyPreferredMany}, within.mode)
			require.Equal(t, uint64(1), within.nodes[0])
			got, err := currentPolicy()
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}
