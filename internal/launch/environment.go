package launch

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// assigned lists the settings that Run gives to each child itself. Their values in the environment
// belong to another cluster or to one process, so the children do not inherit them. With
// Plan.GroupSize the same holds for the size of a group.
var assigned = []string{
	"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "STEPVAN_NUM_PEER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT",
	"DMLC_NODE_RANK", "DMLC_RANK_OFFSET", "DMLC_INSTANCE_ID", "STEPVAN_RANK", "STEPMESH_GPU", "DMLC_PORT",
}

// rootURI is the address of the scheduler.
const rootURI = "127.0.0.1"

// markName is the variable that marks processes of a run. It has no prefix of a setting.
const markName = "_STEPVAN_LAUNCH"

// environment is the source of the children's environments.
type environment struct {
	settings  config.Settings // of the scheduler
	inherited []string        // without settings
	written   []string        // see explicitSettings
	id        string          // of this run only
	mark      string          // NAME=value: the ids of the runs that this process belongs to, then id
}

// newEnvironment reads the settings that the children share. The error joins every mistake.
func newEnvironment(plan *Plan, port int) (*environment, error) {
	all, err := mergedEnvironment(plan.Env)
	if err != nil {
		return nil, err
	}
	settings, _, err := config.FromEnv(config.Lookup(ofScheduler(plan, port, all)), nil)
	if err != nil {
		return nil, err
	}
	if settings.Van == config.VanMem {
		return nil, &stepvan.ConfigError{Key: "STEPVAN_VAN", Value: string(config.VanMem), Reason: "mem works only within one process, and each child is a process: set auto, shm or tcp"}
	}
	if plan.Prefix && settings.LogFormat == config.LogAuto {
		settings.LogFormat = config.LogConsole // the lines are for people, though a child sees a pipe
	}
	id := rand.Text()
	inherited := config.Clean(all)
	return &environment{settings: settings, inherited: inherited, written: explicitSettings(all, inherited), id: id, mark: markVariable(id)}, nil
}

// explicitSettings lists the settings of stepvan, and the numbers of cores, that the user wrote. A
// program may set another name of the same setting in its code; these overrule it even at their
// default.
func explicitSettings(all, inherited []string) (list []string) {
	for _, entry := range all {
		name := nameOf(entry)
		own := strings.HasPrefix(name, "STEPVAN_") || strings.HasPrefix(name, "STEPMESH_CPU_")
		if own && !slices.Contains(assigned, name) && !slices.Contains(inherited, entry) {
			list = append(list, entry)
		}
	}
	return list
}

// markVariable is the mark in the children's environments. It keeps the ids of outer runs.
func markVariable(id string) string {
	for _, entry := range os.Environ() {
		if outer, ok := strings.CutPrefix(entry, markName+"="); ok && outer != "" {
			id = outer + "," + id
		}
	}
	return markName + "=" + id
}

// mergedEnvironment is the environment of this process with the plan's entries on top.
func mergedEnvironment(extra []string) ([]string, error) {
	for _, entry := range extra {
		if name := nameOf(entry); name == "" || name == entry {
			return nil, errs.Invalid("Plan.Env: not a variable (got %q, want NAME=value)", text.Cut(entry))
		}
	}
	replaced := func(entry string) bool { return nameOf(entry) == markName || has(extra, nameOf(entry)) }
	return append(slices.DeleteFunc(os.Environ(), replaced), extra...), nil
}

func nameOf(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}

// has reports whether an environment has a variable.
func has(environ []string, name string) bool {
	return slices.ContainsFunc(environ, func(entry string) bool { return nameOf(entry) == name })
}

// ofScheduler is the environment of the scheduler.
func ofScheduler(plan *Plan, port int, all []string) []string {
	out := slices.DeleteFunc(slices.Clone(all), func(entry string) bool { return slices.Contains(assigned, nameOf(entry)) })
	out = append(out,
		"DMLC_ROLE="+string(stepvan.RoleScheduler),
		"DMLC_NUM_WORKER="+strconv.Itoa(plan.Workers),
		"DMLC_NUM_SERVER="+strconv.Itoa(plan.Servers),
		"STEPVAN_NUM_PEER="+strconv.Itoa(plan.Peers),
		"DMLC_PS_ROOT_URI="+rootURI,
		"DMLC_PS_ROOT_PORT="+strconv.Itoa(port),
	)
	if plan.GroupSize != 0 {
		out = append(out, "DMLC_GROUP_SIZE="+strconv.Itoa(plan.GroupSize))
	}
	return out
}

// of returns the environment of one child.
func (e *environment) of(c Child) ([]string, error) {
	s := e.settings
	if s.Role = c.Role; c.Role != stepvan.RoleScheduler {
		s.NodeRank, s.GPU = c.Node, c.Device
	}
	if c.Role != stepvan.RoleServer && c.Role != stepvan.RolePeer { // the others are not dialled
		s.Interface, s.NodeHost, s.NumPorts = "", "", 1
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("settings of %v: %w", c, err)
	}
	env := s.Env()
	list := slices.Concat(e.inherited, env)
	for _, entry := range e.written {
		if !has(env, nameOf(entry)) {
			list = append(list, entry)
		}
	}
	return append(list, e.mark), nil
}
