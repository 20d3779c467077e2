package version

import (
	"cmp"
	"runtime/debug"
)

const (
	module = "github.com/stepvan/stepvan"
	// unknown is Go's word for a build without a version.
	unknown = "(devel)"
	// shortRevision is as much of a revision as Go's own versions have.
	shortRevision = 12
)

// given is the version for a build that Go cannot know one of, as from a source archive. The linker sets it:
// -ldflags "-X github.com/stepvan/stepvan/internal/version.given=v1.2.3".
var given string

// Text is the most exact version that is known: "v1.2.3", "v1.2.4-0.20260102030405-abcdef012345+dirty",
// "(devel) abcdef012345" or "(devel)".
func Text() string {
	info, _ := debug.ReadBuildInfo()
	return Of(info)
}

// Of is Text of what info describes: a program of this module, or one that uses it. info may be nil.
func Of(info *debug.BuildInfo) string {
	found := recorded(info)
	if found == "" || found == unknown {
		return cmp.Or(given, withRevision(info))
	}
	return found
}

// recorded is the version that Go has written down, if any.
func recorded(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, m := range info.Deps {
		switch {
		case m.Path != module:
		case m.Replace != nil:
			return m.Replace.Version // none for a folder
		default:
			return m.Version
		}
	}
	if info.Main.Path != "" && info.Main.Path != module {
		return "" // that of another module
	}
	return info.Main.Version
}

// withRevision is unknown, and the commit where the program is one of this module.
func withRevision(info *debug.BuildInfo) string {
	if info == nil || info.Main.Path != module {
		return unknown
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = " " + s.Value[:min(len(s.Value), shortRevision)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return unknown
	}
	return unknown + revision + dirty
}
