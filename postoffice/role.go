package postoffice

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
)

// Role is what an instance is in the cluster. A joint process is several
// instances, each with a role of its own.
type Role uint8

// Roles.
const (
	RoleScheduler Role = iota + 1
	RoleServer
	RoleWorker
	RolePeer // may talk to any other peer
	roleEnd
)

var roleNames = [roleEnd]string{"", "scheduler", "server", "worker", "peer"}

// String is the role's name in the words of DMLC_ROLE.
func (r Role) String() string {
	if r == 0 || r >= roleEnd {
		return fmt.Sprintf("role %d", uint8(r))
	}
	return roleNames[r]
}

// MarshalText is String for known roles.
func (r Role) MarshalText() ([]byte, error) {
	if r == 0 || r >= roleEnd {
		return nil, errs.Invalid("unknown role %d", uint8(r))
	}
	return []byte(roleNames[r]), nil
}

// UnmarshalText knows the names that MarshalText writes.
func (r *Role) UnmarshalText(text []byte) error {
	for i := RoleScheduler; i < roleEnd; i++ {
		if roleNames[i] == string(text) {
			*r = i
			return nil
		}
	}
	return errs.Invalid("unknown role %.32q", text)
}

// joins reports whether nodes of the role register at a scheduler.
func (r Role) joins() bool { return r > RoleScheduler && r < roleEnd }

// Group is a set of roles.
type Group uint8

// Groups. The bits of scheduler, servers and workers are those of ps-lite.
const (
	GroupScheduler Group = 1 << iota
	GroupServers
	GroupWorkers
	GroupPeers

	// GroupNodes is everybody who registers at a scheduler.
	GroupNodes = GroupServers | GroupWorkers | GroupPeers
	groupAll   = GroupScheduler | GroupNodes
)

// Has reports whether the role is in the group.
func (g Group) Has(r Role) bool { return r > 0 && r < roleEnd && g&(1<<(r-1)) != 0 }

// String reads "servers and workers".
func (g Group) String() string {
	var names []string
	for r := RoleScheduler; r < roleEnd; r++ {
		switch {
		case !g.Has(r):
		case r == RoleScheduler:
			names = append(names, "scheduler")
		default:
			names = append(names, r.String()+"s")
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return conjunction(names)
}

// check refuses groups that no barrier can be over, and callers outside of the group.
func (g Group) check(caller Role) error {
	switch {
	case g&^groupAll != 0:
		return errs.Invalid("barrier: unknown roles in group %#x", uint8(g))
	case g&GroupNodes == 0:
		return errs.Invalid("barrier: the group names no role: include servers, workers or both")
	case !g.Has(caller):
		return errs.Invalid("barrier over %s: the caller is a %s and not in the group: include its role, or do not call it there", g, caller)
	}
	return nil
}
