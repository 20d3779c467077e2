package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
)

// chooseVan applies the precedence of the names of the van. STEPVAN_VAN comes
// first. DMLC_ENABLE_RDMA and DMLC_PS_VAN_TYPE come next, and must agree. But
// DMLC_ENABLE_RDMA=0 names no van: it leaves the choice to a DMLC_PS_VAN_TYPE
// that is not RDMA.
func (r *reader) chooseVan(given []source, values []reflect.Value) int {
	van := func(i int) Van { return Van(values[i].String()) }
	if given[0].name == "STEPVAN_VAN" {
		for i := 1; i < len(given); i++ {
			if van(i) != van(0) {
				r.warn(given[i], "is overruled by STEPVAN_VAN="+given[0].value+": unset it")
			}
		}
		return 0
	}
	if len(given) == 1 || van(0) == van(1) {
		return 0
	}
	if off, err := parseBool(given[0].value); err == nil && !off && van(1) != VanRDMA && van(1) != VanShmRDMA {
		return 1
	}
	r.contradict(byName["STEPVAN_VAN"], given[1], given[0])
	return -1
}

// needed reports whether one of the variables of the row must be set. It may ask for other rows before they are read.
func (f *field) needed(lookup func(string) (string, bool)) bool {
	switch f.name {
	case "DMLC_PS_ROOT_URI":
		return !isLocal(lookup)
	case "DMLC_NUM_WORKER", "DMLC_NUM_SERVER":
		return !hasPeers(lookup)
	case "STEPVAN_NUM_PEER":
		return isPeer(lookup)
	}
	return f.required
}

// hasPeers reports whether the cluster has peers. Then it may have nothing else.
func hasPeers(lookup func(string) (string, bool)) bool {
	given := set(lookup, []string{"STEPVAN_NUM_PEER"})
	return isPeer(lookup) || len(given) > 0 && given[0].value != "0"
}

func isPeer(lookup func(string) (string, bool)) bool { return isRole(lookup, stepvan.RolePeer) }

func isRole(lookup func(string) (string, bool), role stepvan.Role) bool {
	given := set(lookup, []string{"DMLC_ROLE"})
	return len(given) > 0 && strings.EqualFold(given[0].value, string(role))
}

func isLocal(lookup func(string) (string, bool)) bool {
	given := set(lookup, []string{"DMLC_LOCAL"})
	if len(given) == 0 {
		return false
	}
	on, err := parseBool(given[0].value)
	return err == nil && on
}

func (r *reader) wrote(name string) bool { _, ok := r.written[name]; return ok }

// derive sets the defaults that follow from other settings, and brings text into one form.
func (r *reader) derive() {
	s := &r.settings
	s.RootURI = unbracket(s.RootURI)
	s.NodeHost = unbracket(s.NodeHost)
	if s.RootURI == "" && s.Local {
		s.RootURI = "127.0.0.1"
	}
	if !r.wrote("DMLC_NODE_RANK") && (r.wrote("STEPMESH_GPU") || r.wrote("DMLC_RANK_OFFSET")) && !r.wrote("STEPVAN_RANK") {
		s.NodeRank = 0
	}
	if s.Routing != stepvan.Broadcast && !r.wrote("STEPVAN_BATCH") {
		s.Batch = BatchAny
	}
	if s.BindCPUCore && !r.wrote("STEPVAN_BIND_CPU_CORE") && slices.ContainsFunc(coreNumbers, r.wrote) {
		s.Binding = BindingOn
	}
	r.deriveHeartbeat(s)
}

// coreNumbers are the settings that say which cores belong to a device.
var coreNumbers = []string{"STEPMESH_CPU_START_OFFSET", "STEPMESH_CPU_CORES_PER_GPU", "STEPMESH_CPU_CORES_PER_SOCKET"}

// deriveHeartbeat keeps the proportion of interval and timeout when one of them is
// set; 0 for one of them switches both off.
func (r *reader) deriveHeartbeat(s *Settings) {
	interval, timeout := r.wrote("PS_HEARTBEAT_INTERVAL"), r.wrote("PS_HEARTBEAT_TIMEOUT")
	switch {
	case interval && !timeout:
		s.HeartbeatTimeout = 3 * s.HeartbeatInterval
	case timeout && !interval:
		s.HeartbeatInterval = (s.HeartbeatTimeout + 2) / 3
	}
	if (interval || timeout) && (s.HeartbeatInterval == 0 || s.HeartbeatTimeout == 0) {
		s.HeartbeatInterval, s.HeartbeatTimeout = 0, 0
		r.warn(source{name: "PS_HEARTBEAT_INTERVAL", value: "0"}, "heartbeats are off: a peer that falls silent is noticed only when its connection breaks")
	}
}

// unbracket turns [::1] into ::1.
func unbracket(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
