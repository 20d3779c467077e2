package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharedNamesWhatDiffers(t *testing.T) {
	a, _ := read(t, "")
	b, _ := read(t, "DMLC_GROUP_SIZE=2 STEPVAN_PAIRING=all DMLC_NODE_RANK=1 STEPVAN_RAILS=4")
	var differ []string
	mine, theirs := a.Shared(), b.Shared()
	require.Equal(t, Pair{"DMLC_NUM_WORKER", "2"}, mine[0])
	for i := range mine {
		require.Equal(t, mine[i].Name, theirs[i].Name)
		if mine[i] != theirs[i] {
			differ = append(differ, mine[i].Name)
		}
	}
	require.Equal(t, []string{"DMLC_GROUP_SIZE", "STEPVAN_PAIRING"}, differ)
}

func TestEnvRoundTrip(t *testing.T) {
	for _, env := range []string{
		"",
		"DMLC_LOCAL=1 DMLC_PS_ROOT_URI=",
		"STEPVAN_ROUTING=key PS_HEARTBEAT_INTERVAL=0.2",
		"STEPMESH_GPU=1 DMLC_GROUP_SIZE=2",
		"DMLC_ROLE=peer STEPVAN_NUM_PEER=2 DMLC_NUM_WORKER= DMLC_NUM_SERVER= STEPVAN_PEER_RING_BYTES=128KiB",
		"STEPMESH_GPU=1 DMLC_GROUP_SIZE=2 DMLC_NODE_RANK=-1",
		"PS_HEARTBEAT_INTERVAL=0",
		"STEPVAN_TRACE_FILE=/tmp/t.json STEPVAN_PIECE_BYTES=65537 PS_RESEND=1 PS_RESEND_TIMEOUT=7",
		"DMLC_ENABLE_RDMA=ibverbs STEPMESH_BAKCEND=GPU PS_VERBOSE=2",
	} {
		t.Run(env, func(t *testing.T) {
			s, _ := read(t, env)
			again, _, err := FromEnv(environment(s.Env()...))
			require.NoError(t, err)
			require.Equal(t, s, again)
		})
	}
}

func TestEnvIsShort(t *testing.T) {
	s, _ := read(t, "STEPVAN_VAN=tcp")
	require.Equal(t, []string{
		"DMLC_ROLE=worker", "DMLC_NUM_WORKER=2", "DMLC_NUM_SERVER=2", "DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_PS_ROOT_PORT=8123",
		"DMLC_NODE_RANK=-1", "STEPVAN_VAN=tcp", "STEPVAN_BATCH=lockstep", "PS_HEARTBEAT_INTERVAL=500ms", "PS_HEARTBEAT_TIMEOUT=1.5s",
	}, s.Env())
}

func TestClean(t *testing.T) {
	in := []string{"PATH=/bin", "DMLC_ROLE=worker", "DMLC_PS_VAN_TYPE=zmq", "STEPMESH_BAKCEND=GPU", "HOME=/"}
	require.Equal(t, []string{"PATH=/bin", "HOME=/"}, Clean(in))
	require.Equal(t, "DMLC_ROLE=worker", in[1], "the argument is left alone")
}

func TestTableTellsTheSource(t *testing.T) {
	lookup, environ := environment(base, "PS_VERBOSE=1 PS_HEARTBEAT_INTERVAL=1")
	s, _, err := FromEnv(lookup, environ)
	require.NoError(t, err)
	rows := map[string]Row{}
	for _, r := range s.Table(lookup) {
		rows[r.Name] = r
	}
	require.Equal(t, "PS_VERBOSE", rows["STEPVAN_LOG_LEVEL"].Source)
	require.Equal(t, "debug", rows["STEPVAN_LOG_LEVEL"].Value)
	require.Equal(t, []string{"PS_VERBOSE"}, rows["STEPVAN_LOG_LEVEL"].Aliases)
	require.Equal(t, "derived", rows["PS_HEARTBEAT_TIMEOUT"].Source)
	require.Equal(t, "3s", rows["PS_HEARTBEAT_TIMEOUT"].Value)
	require.Equal(t, "default", rows["STEPVAN_RAILS"].Source)
	require.Equal(t, "1 to 16", rows["STEPVAN_RAILS"].Accepts)
	require.Equal(t, "DMLC_ROLE", rows["DMLC_ROLE"].Source)
	require.Len(t, s.Table(nil), len(table))
}

func ExampleFromEnv() {
	env := map[string]string{
		"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1",
		"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "80O0", "PS_DROP_MSG": "150",
	}
	_, _, err := FromEnv(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, nil)
	fmt.Println(err)
	// Output:
	// DMLC_PS_ROOT_PORT="80O0": must be a whole number from 0 to 65535
	// PS_DROP_MSG="150": must be from 0 to 100
}
