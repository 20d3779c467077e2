package config

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// The settings that say which instance this is; a mistake in their sum is
// reported under the first of them that the user wrote.
var (
	instanceNames = []string{"STEPMESH_GPU", "DMLC_RANK_OFFSET", "DMLC_GROUP_SIZE", "DMLC_NODE_RANK", "DMLC_INSTANCE_ID"}
	rankNames     = []string{"DMLC_NODE_RANK", "STEPMESH_GPU", "DMLC_RANK_OFFSET", "DMLC_GROUP_SIZE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "STEPVAN_NUM_PEER", "DMLC_ROLE"}
)

// checkIdentity checks instance and rank against the size of the cluster. The
// rank is looked at only when the instance is right, as it contains it.
func (c *checker) checkIdentity(s *Settings) {
	if s.Role == stepvan.RoleScheduler {
		return
	}
	before := len(c.errs)
	c.checkInstance(s)
	if len(c.errs) > before {
		return
	}
	if s.PreferredRank >= 0 {
		c.checkPreferredRank(s)
	} else if s.NodeRank >= 0 {
		c.checkNodeRank(s)
	}
}

func (c *checker) checkInstance(s *Settings) {
	if s.InstanceID >= 0 {
		c.rule(s.InstanceID < s.GroupSize, fmt.Sprintf("must be less than DMLC_GROUP_SIZE, which is %d", s.GroupSize), "DMLC_INSTANCE_ID", "DMLC_GROUP_SIZE")
		return
	}
	i := s.Instance()
	c.blame(s.NodeRank < 0 || i >= 0 && i < s.GroupSize, fmt.Sprintf(
		"STEPMESH_GPU + DMLC_RANK_OFFSET = %d + %d is the instance within the node and must be from 0 to %d, as DMLC_GROUP_SIZE is %d: set DMLC_GROUP_SIZE, DMLC_RANK_OFFSET or DMLC_INSTANCE_ID",
		s.GPU, s.RankOffset, s.GroupSize-1, s.GroupSize), instanceNames...)
}

func (c *checker) checkPreferredRank(s *Settings) {
	names := append([]string{"STEPVAN_RANK"}, rankNames...)
	size := s.roleInstances()
	c.rule(s.PreferredRank < size || size == 0, fmt.Sprintf("the rank must be from 0 to %d: there are %d %s instances (nodes times DMLC_GROUP_SIZE)", size-1, size, s.Role), names...)
	c.rule(s.NodeRank < 0 || s.rankOfNode() == s.PreferredRank, fmt.Sprintf("contradicts DMLC_NODE_RANK=%d, by which the rank is %d: unset one of them", s.NodeRank, s.rankOfNode()), names...)
}

func (c *checker) checkNodeRank(s *Settings) {
	rank, size := s.rankOfNode(), s.roleInstances()
	c.blame(size == 0 || rank >= 0 && rank < size, fmt.Sprintf(
		"the rank is DMLC_NODE_RANK * DMLC_GROUP_SIZE + STEPMESH_GPU + DMLC_RANK_OFFSET = %d and must be from 0 to %d: there are %d %s instances (nodes times DMLC_GROUP_SIZE)",
		rank, size-1, size, s.Role), rankNames...)
}
