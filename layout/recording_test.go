package layout

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordings may name another folder than that of the committed recordings: make oracle compares with more cases.
var recordings = flag.String("recordings", "testdata", "the folder of the recordings that TestTorch and TestMegatron read")

// recordedHead is the first line of a recording. A generator in scripts/oracle has made the cases of the wheels that it
// names.
type recordedHead struct {
	Generator string
	Seed      int
	Cases     int
	Wheels    map[string]struct{ Version, Sha256 string }
}

// eachCase calls fn for each case of a recording, which must have at least so many.
func eachCase[T any](t *testing.T, name string, least int, fn func(i int, x *T)) {
	t.Helper()
	f, err := os.Open(filepath.Join(*recordings, name))
	require.NoError(t, err)
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	var head recordedHead
	require.NoError(t, lines.Decode(&head))
	require.NotEmpty(t, head.Wheels)
	for name, wheel := range head.Wheels {
		require.NotEmpty(t, wheel.Version, name)
		require.Len(t, wheel.Sha256, 64, name)
	}
	require.GreaterOrEqual(t, head.Cases, least)
	count := 0
	for ; lines.More(); count++ {
		x := new(T)
		require.NoError(t, lines.Decode(x))
		fn(count, x)
	}
	require.Equal(t, head.Cases, count)
	t.Logf("%d cases of %s, seed %d, %v", count, head.Generator, head.Seed, head.Wheels)
}
