package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef0123456789"}}
	dirty := []debug.BuildSetting{revision[0], {Key: "vcs.modified", Value: "true"}}
	clean := []debug.BuildSetting{revision[0], {Key: "vcs.modified", Value: "false"}}
	own := func(v string) debug.Module { return debug.Module{Path: module, Version: v} }
	used := func(m debug.Module) []*debug.Module { return []*debug.Module{{Path: "a/b", Version: "v9"}, &m} }
	other := debug.Module{Path: "example.com/program", Version: "v7.0.0"}
	for name, tc := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"nothing is known":        {nil, "(devel)"},
		"empty":                   {&debug.BuildInfo{}, "(devel)"},
		"a release":               {&debug.BuildInfo{Main: own("v1.2.3"), Settings: revision}, "v1.2.3"},
		"no version":              {&debug.BuildInfo{Main: own("(devel)")}, "(devel)"},
		"a commit":                {&debug.BuildInfo{Main: own("(devel)"), Settings: clean}, "(devel) abcdef012345"},
		"a commit, changed":       {&debug.BuildInfo{Main: own(""), Settings: dirty}, "(devel) abcdef012345+dirty"},
		"used by a program":       {&debug.BuildInfo{Main: other, Deps: used(own("v1.2.3"))}, "v1.2.3"},
		"replaced by a version":   {&debug.BuildInfo{Main: other, Deps: used(debug.Module{Path: module, Version: "v1", Replace: &debug.Module{Version: "v2.0.0"}})}, "v2.0.0"},
		"replaced by a folder":    {&debug.BuildInfo{Main: other, Deps: used(debug.Module{Path: module, Version: "v1", Replace: &debug.Module{Path: "../x"}}), Settings: revision}, "(devel)"},
		"that of another program": {&debug.BuildInfo{Main: other, Settings: revision}, "(devel)"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Of(tc.info)) })
	}
}

func TestTheLinkerFillsInWhatGoDoesNotKnow(t *testing.T) {
	t.Cleanup(func() { given = "" })
	given = "v3.2.1"
	require.Equal(t, "v3.2.1", Of(nil))
	require.Equal(t, "v3.2.1", Of(&debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}))
	require.Equal(t, "v1.2.3", Of(&debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}))
	require.Equal(t, "v3.2.1", Text(), "tests have no version")
}
