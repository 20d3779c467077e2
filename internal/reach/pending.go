package reach

import (
	"math"
	"syscall"

	"github.com/stepvan/stepvan/config"
)

const (
	// morePending is how many peers may be connected to a node, beyond all that its cluster has, before they are known
	// to belong to it.
	morePending = 256
	// pendingShare is the part of the descriptors of this process that they may take, as long as the cluster needs no
	// more.
	pendingShare = 8
	// mostPending is the most that vans can be told.
	mostPending = 1 << 16
)

// pendingLimit is how many connections a node may have with peers that are not known to belong to the cluster. All
// nodes of the cluster may be among them at its start.
func pendingLimit(s *config.Settings, files uint64) int {
	need := (s.NumWorkerInstances() + s.NumServerInstances()) * s.Rails
	allowed := int(min(files/pendingShare, math.MaxInt32))
	return min(max(need, min(need+morePending, allowed)), mostPending)
}

// files is how many descriptors this process may have.
func files() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
