package config

import (
	"slices"
	"strings"
)

// prefixes mark variables that are meant for this library. others are variables with
// such a prefix that are meant for other programs. ps(1) reads some. Programs that were
// written for StepMesh read the rest themselves.
var (
	prefixes = []string{"STEPVAN_", "STEPMESH_", "DMLC_", "PS_"}
	others   = []string{"PS_FORMAT", "PS_PERSONALITY", "PS_COLORS", "PS_SYSTEM_MAP", "STEPMESH_CONNECTOR_DEBUG", schedulerStarted, "STEPAF_GPU"}
	// testPrefix is left to the tests of this project and of its users.
	testPrefix = "STEPVAN_TEST_"
	// schedulerStarted is also the beginning of a name with a number, where a program starts several schedulers.
	schedulerStarted = "STEPMESH_SCHEDULER_STARTED"
)

// meaningless are variables of the programs that stepvan replaces. They are accepted, and do nothing.
func meaningless(name string) bool {
	if slices.Contains(others, name) {
		return false
	}
	return strings.HasPrefix(name, "BYTEPS_") || strings.HasPrefix(name, "STEPAF_") ||
		name == "DMLC_ENABLE_UCX" || name == "DMLC_USE_KUBERNETES"
}

// scan warns of the names in environ that do not belong to a setting. Each unknown
// name has a line of its own, and one line lists all names without a meaning. scan
// returns, for each known name, an unknown one that resembles it.
func (r *reader) scan(environ []string) map[string]string {
	near := map[string]string{}
	var without []string
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case meaningless(name):
			without = append(without, name)
		case unknown(name):
			if guess := r.warnUnknown(source{name, value}); guess != "" {
				near[guess] = name
			}
		}
	}
	if len(without) > 0 {
		r.warn(source{name: strings.Join(slices.Compact(without), ", ")}, "has no meaning in stepvan and is ignored: unset it")
	}
	return near
}

func unknown(name string) bool {
	if byName[name] != nil || slices.Contains(others, name) || strings.HasPrefix(name, testPrefix) || strings.HasPrefix(name, schedulerStarted+"_") {
		return false
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func (r *reader) warnUnknown(src source) string {
	guess := nearest(src.name, knownNames)
	if guess == "" {
		r.warn(src, "is not a setting of stepvan and is ignored; `stepvan env` lists them")
		return ""
	}
	r.warn(src, "is not a setting of stepvan and is ignored; did you mean "+guess+"?")
	return guess
}

// knownNames has every variable that is spelt as it should be.
func knownNames(yield func(string) bool) {
	for name, f := range byName {
		if !slices.Contains(f.misspelt, name) && !yield(name) {
			return
		}
	}
}
