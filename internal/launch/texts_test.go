package launch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsCutTheTextsOfTheCaller(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, call := range map[string]func() error{
		"a size":     func() error { _, err := ParseSize("2" + long); return err },
		"many nodes": func() error { _, err := ParseSize(strings.Repeat("9", len(long))); return err },
		"a command":  func() error { return Run(t.Context(), Plan{Workers: 1, Worker: []string{long}, Scheduler: sh(":")}) },
		"a variable": func() error { return Run(t.Context(), Plan{Workers: 1, Env: []string{long}}) },
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1000)
		})
	}
}
