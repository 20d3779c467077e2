package build

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/stepvan/stepvan/internal/version"
	"github.com/stepvan/stepvan/internal/wire"
)

// Text describes this program, one property per line.
func Text() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stepvan  %s\n", version.Of(info))
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if revision := set["vcs.revision"]; revision != "" {
		fmt.Fprintf(&b, "commit   %s%s\n", strings.TrimSpace(revision+" "+set["vcs.time"]), modified(set["vcs.modified"]))
	}
	fmt.Fprintf(&b, "wire     %d (nodes of other versions refuse each other)\n", wire.Version)
	fmt.Fprintf(&b, "go       %s %s/%s\n", info.GoVersion, cmp.Or(set["GOOS"], runtime.GOOS), cmp.Or(set["GOARCH"], runtime.GOARCH))
	fmt.Fprintf(&b, "cgo      %s\n", map[bool]string{true: "on", false: "off"}[set["CGO_ENABLED"] == "1"])
	return b.String()
}

func modified(flag string) string {
	if flag == "true" {
		return ", with changes that are not committed"
	}
	return ""
}
