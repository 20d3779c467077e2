package reach

import (
	"math"
	"syscall"

	"github.com/stepvan/stepvan/config"
)

const (
	// moreVisitors is how many peers may be connected to a node, beyond all that its cluster has, before they are known
	// to belong to it.
	moreVisitors = 256
	// visitorShare is the part of the descriptors of this process that they may take, as long as the cluster needs no
	// more.
	visitorShare = 8
	// mostVisitors is the most that vans can be told.
	mostVisitors = 1 << 16
)

// visitorLimit is how many connections a node may have with peers that are not known to belong to the cluster. All
// nodes of the cluster may be among them at its start.
func visitorLimit(s *config.Settings, files uint64) int {
	need := s.Instances() * s.Rails
	allowed := int(min(files/visitorShare, math.MaxInt32))
	return min(max(need, min(need+moreVisitors, allowed)), mostVisitors)
}

// files is how many descriptors this process may have.
func files() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
