package build

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	require.Equal(t, `stepvan  v1.2.3
commit   abc 2030-01-02T03:04:05Z, with changes that are not committed
wire     2 (nodes of other versions refuse each other)
go       go1.99 linux/arm64
cgo      on
`, describe(&debug.BuildInfo{
		GoVersion: "go1.99", Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2030-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}, {Key: "CGO_ENABLED", Value: "1"},
		},
	}))
	require.Contains(t, describe(&debug.BuildInfo{}), "stepvan  (devel)\nwire")
	require.Contains(t, Text(), runtime.Version())
}
