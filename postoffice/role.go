package postoffice

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// roles lists the roles that an instance can have. Lists of instances have the same order, and PeerIDs depend on it.
var roles = [...]stepvan.Role{stepvan.RoleScheduler, stepvan.RoleServer, stepvan.RoleWorker, stepvan.RolePeer}

// roleNumber is the place of r among roles, from 1, or 0 for a role that no instance has.
func roleNumber(r stepvan.Role) int { return slices.Index(roles[:], r) + 1 }

// checkRole refuses roles whose instances do not register at a scheduler.
func checkRole(r stepvan.Role) error {
	switch {
	case roleNumber(r) == 0:
		return fmt.Errorf("unknown role %.32q", string(r))
	case r == stepvan.RoleScheduler:
		return fmt.Errorf("a %s does not join", r)
	}
	return nil
}

// Group is a set of roles.
type Group uint8

// Groups. Scheduler, servers and workers have the same bits as in ps-lite.
const (
	GroupScheduler Group = 1 << iota
	GroupServers
	GroupWorkers
	GroupPeers

	// GroupNodes has all roles that register at a scheduler.
	GroupNodes = GroupServers | GroupWorkers | GroupPeers
	groupAll   = GroupScheduler | GroupNodes
)

// Has reports whether the role is in the group.
func (g Group) Has(r stepvan.Role) bool {
	n := roleNumber(r)
	return n > 0 && g&(1<<(n-1)) != 0
}

// String reads "servers and workers".
func (g Group) String() string {
	var names []string
	for _, r := range roles {
		switch {
		case !g.Has(r):
		case r == stepvan.RoleScheduler:
			names = append(names, string(r))
		default:
			names = append(names, string(r)+"s")
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return conjunction(names)
}

// check refuses groups that no barrier can be over, and callers outside of the group.
func (g Group) check(caller stepvan.Role) error {
	switch {
	case g&^groupAll != 0:
		return errs.Invalid("barrier: group: unknown roles (got %#x, want bits of %#x)", uint8(g), uint8(groupAll))
	case g&GroupNodes == 0:
		return errs.Invalid("barrier: group: it has no workers, servers or peers: include one of these roles")
	case !g.Has(caller):
		return errs.Invalid("barrier over %s: the caller is not in the group (got a %s): include its role, or do not call it there", g, caller)
	}
	return nil
}
