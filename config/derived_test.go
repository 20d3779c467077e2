package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestRankAndInstance(t *testing.T) {
	cases := []struct {
		env            string
		rank, instance int
	}{
		{"", -1, 0},
		{"DMLC_GROUP_SIZE=8", -1, -1},
		{"DMLC_NODE_RANK=1", 1, 0},
		{"DMLC_NODE_RANK=1 DMLC_GROUP_SIZE=8 STEPMESH_GPU=3", 11, 3},
		{"DMLC_GROUP_SIZE=8 STEPMESH_GPU=3", 3, 3},
		{"DMLC_NODE_RANK=1 DMLC_GROUP_SIZE=4 STEPMESH_GPU=7 DMLC_RANK_OFFSET=-4", 7, 3},
		{"DMLC_NODE_RANK=0 DMLC_GROUP_SIZE=8 STEPMESH_GPU=1 DMLC_RANK_OFFSET=4", 5, 5},
		{"DMLC_NODE_RANK=0 DMLC_NUM_WORKER=8 STEPMESH_GPU=5 DMLC_INSTANCE_ID=0", 5, 0},
		{"DMLC_GROUP_SIZE=4 STEPVAN_RANK=6", 6, 2},
		{"DMLC_GROUP_SIZE=4 STEPVAN_RANK=6 DMLC_INSTANCE_ID=1", 6, 1},
		{"STEPVAN_RANK=1 STEPMESH_GPU=5", 1, 0},
		{"STEPVAN_RANK=1 DMLC_NODE_RANK=1", 1, 0},
		{"DMLC_ROLE=joint DMLC_NUM_SERVER=4 DMLC_NODE_RANK=3", 3, 0},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=4 DMLC_NODE_RANK=3 DMLC_GROUP_SIZE=2 STEPMESH_GPU=1", 7, 1},
	}
	for _, c := range cases {
		t.Run(c.env, func(t *testing.T) {
			s, _ := read(t, c.env)
			require.Equal(t, c.rank, s.Rank(), "rank")
			require.Equal(t, c.instance, s.Instance(), "instance")
		})
	}
}

func TestCounts(t *testing.T) {
	cases := []struct {
		env                     string
		workers, servers, peers int
	}{
		{"DMLC_NUM_SERVER=3", 2, 3, 4},
		{"DMLC_NUM_SERVER=3 DMLC_GROUP_SIZE=4", 8, 12, 4},
		{"DMLC_NUM_SERVER=3 DMLC_GROUP_SIZE=4 STEPVAN_PAIRING=all", 8, 12, 13},
		{"DMLC_ROLE=server DMLC_GROUP_SIZE=4 STEPVAN_PAIRING=all", 8, 8, 9},
		{"DMLC_ROLE=scheduler DMLC_GROUP_SIZE=4", 8, 8, 16},
		{"DMLC_ROLE=joint", 2, 2, 6},
		{"DMLC_ROLE=joint STEPVAN_NUM_PEER=3", 2, 2, 6},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=3", 2, 2, 3},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=3 DMLC_GROUP_SIZE=4 STEPVAN_PAIRING=all", 8, 8, 12},
		{"DMLC_ROLE=scheduler STEPVAN_NUM_PEER=3 DMLC_GROUP_SIZE=4", 8, 8, 28},
	}
	for _, c := range cases {
		t.Run(c.env, func(t *testing.T) {
			s, _ := read(t, c.env)
			require.Equal(t, []int{c.workers, c.servers, c.peers}, []int{s.NumWorkerInstances(), s.NumServerInstances(), s.Peers()})
		})
	}
}

func TestPolicy(t *testing.T) {
	for word, want := range map[BatchWord]stepvan.Policy{BatchLockstep: stepvan.LockStep, BatchAny: stepvan.AnyReady, BatchK: stepvan.AtLeast(3)} {
		s := Default()
		s.Batch, s.BatchMin = word, 3
		require.Equal(t, want, s.Policy())
	}
}
