package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// environment is "A=1 B=2" with later words winning; "A=" unsets.
func environment(words ...string) (func(string) (string, bool), []string) {
	m := map[string]string{}
	for _, w := range strings.Fields(strings.Join(words, " ")) {
		name, value, _ := strings.Cut(w, "=")
		m[name] = value
		if value == "" {
			delete(m, name)
		}
	}
	var environ []string
	for name, value := range m {
		environ = append(environ, name+"="+value)
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }, environ
}

const base = "DMLC_ROLE=worker DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=2 DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=8123 "

func read(t *testing.T, words string) (Settings, []Warning) {
	t.Helper()
	s, warnings, err := FromEnv(environment(base, words))
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	return s, warnings
}

// mistakes returns the texts of the joined errors.
func mistakes(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var out []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var c *stepvan.ConfigError
		require.ErrorAs(t, e, &c)
		require.NotEmpty(t, c.Key)
		require.NotEmpty(t, c.Reason)
		out = append(out, e.Error())
	}
	return out
}

func TestDefaults(t *testing.T) {
	s, warnings := read(t, "")
	require.Empty(t, warnings)
	want := Default()
	want.Role, want.NumWorker, want.NumServer, want.RootURI, want.RootPort = stepvan.RoleWorker, 2, 2, "10.0.0.1", 8123
	require.Equal(t, want, s)
	require.Equal(t, 10*time.Minute, s.StartTimeout)
	require.Equal(t, 65536, s.Handles)
	require.Equal(t, 500*time.Millisecond, s.HeartbeatInterval)
	require.Equal(t, 1500*time.Millisecond, s.HeartbeatTimeout)
	require.Equal(t, Bytes(64<<30), s.MaxMessageBytes)
	require.Equal(t, BackendCPU, s.Backend)
	require.Equal(t, LogInfo, s.LogLevel)
	require.Equal(t, []int{48, 5, 10}, []int{s.CPUCoresPerSocket, s.CPUCoresPerGPU, s.CPUStartOffset})
	require.False(t, s.BindCPUCore || s.SplitQPLag || s.Resend || s.Local)
	require.Equal(t, -1, s.Rank(), "ranks are given in order of arrival")
	require.Equal(t, "10.0.0.1:8123", s.RootAddr())
	require.Nil(t, s.DataPorts())
}

func TestValues(t *testing.T) {
	cases := []struct {
		env  string
		want func(Settings) any
		is   any
	}{
		{"DMLC_ROLE=joint", func(s Settings) any { return s.Role }, stepvan.RoleJoint},
		{"DMLC_ROLE=Scheduler", func(s Settings) any { return s.Role }, stepvan.RoleScheduler},
		{"DMLC_ROLE=scheduler DMLC_PS_ROOT_PORT=0", func(s Settings) any { return s.RootPort }, 0},
		{"DMLC_ENABLE_RDMA=ibverbs", func(s Settings) any { return s.Van }, VanShmRDMA},
		{"DMLC_ENABLE_RDMA=1", func(s Settings) any { return s.Van }, VanShmRDMA},
		{"DMLC_ENABLE_RDMA=0", func(s Settings) any { return s.Van }, VanTCP},
		{"DMLC_ENABLE_RDMA=zmq", func(s Settings) any { return s.Van }, VanTCP},
		{"DMLC_PS_VAN_TYPE=zmq", func(s Settings) any { return s.Van }, VanTCP},
		{"DMLC_PS_VAN_TYPE=shm", func(s Settings) any { return s.Van }, VanShm},
		{"DMLC_PS_VAN_TYPE=shm DMLC_ENABLE_RDMA=false", func(s Settings) any { return s.Van }, VanShm},
		{"DMLC_PS_VAN_TYPE=shm DMLC_ENABLE_RDMA=0", func(s Settings) any { return s.Van }, VanShm},
		{"DMLC_PS_VAN_TYPE=ibverbs DMLC_ENABLE_RDMA=1", func(s Settings) any { return s.Van }, VanShmRDMA},
		{"STEPVAN_VAN=rdma", func(s Settings) any { return s.Van }, VanRDMA},
		{"STEPVAN_VAN=shm DMLC_ENABLE_RDMA=ibverbs DMLC_PS_VAN_TYPE=zmq", func(s Settings) any { return s.Van }, VanShm},
		{"STEPVAN_VAN=auto DMLC_ENABLE_RDMA=ibverbs", func(s Settings) any { return s.Van }, VanAuto},
		{"STEPMESH_BACKEND=gpu", func(s Settings) any { return s.Backend }, BackendGPU},
		{"STEPMESH_BACKEND=DCU", func(s Settings) any { return s.Backend }, BackendDCU},
		{"STEPMESH_BACKEND=klx", func(s Settings) any { return s.Backend }, BackendKLX},
		{"STEPMESH_BAKCEND=GPU", func(s Settings) any { return s.Backend }, BackendGPU},
		{"PS_VERBOSE=0", func(s Settings) any { return s.LogLevel }, LogInfo},
		{"PS_VERBOSE=1", func(s Settings) any { return s.LogLevel }, LogDebug},
		{"PS_VERBOSE=2", func(s Settings) any { return s.LogLevel }, LogTrace},
		{"PS_VERBOSE=2 STEPVAN_LOG_LEVEL=trace", func(s Settings) any { return s.LogLevel }, LogTrace},
		{"PS_HEARTBEAT_INTERVAL=2 PS_HEARTBEAT_TIMEOUT=30", func(s Settings) any { return []time.Duration{s.HeartbeatInterval, s.HeartbeatTimeout} }, []time.Duration{2 * time.Second, 30 * time.Second}},
		{"PS_HEARTBEAT_INTERVAL=0.25", func(s Settings) any { return []time.Duration{s.HeartbeatInterval, s.HeartbeatTimeout} }, []time.Duration{250 * time.Millisecond, 750 * time.Millisecond}},
		{"PS_HEARTBEAT_TIMEOUT=6s", func(s Settings) any { return []time.Duration{s.HeartbeatInterval, s.HeartbeatTimeout} }, []time.Duration{2 * time.Second, 6 * time.Second}},
		{"PS_HEARTBEAT_INTERVAL=0", func(s Settings) any { return []time.Duration{s.HeartbeatInterval, s.HeartbeatTimeout} }, []time.Duration{0, 0}},
		{"PS_HEARTBEAT_TIMEOUT=0 PS_HEARTBEAT_INTERVAL=1", func(s Settings) any { return []time.Duration{s.HeartbeatInterval, s.HeartbeatTimeout} }, []time.Duration{0, 0}},
		{"PS_RESEND=1 PS_RESEND_TIMEOUT=250", func(s Settings) any { return s.ResendTimeout }, 250 * time.Millisecond},
		{"PS_DROP_MSG=10", func(s Settings) any { return s.DropMsg }, 10},
		{"STEPVAN_START_TIMEOUT=90", func(s Settings) any { return s.StartTimeout }, 90 * time.Second},
		{"STEPVAN_START_TIMEOUT=1h30m", func(s Settings) any { return s.StartTimeout }, 90 * time.Minute},
		{"STEPVAN_PIECE_BYTES=512k", func(s Settings) any { return s.PieceBytes }, Bytes(512 << 10)},
		{"STEPVAN_CREDIT_BYTES=2GiB", func(s Settings) any { return s.CreditBytes }, Bytes(2 << 30)},
		{"STEPVAN_ROUTING=key", func(s Settings) any { return s.Batch }, BatchAny},
		{"STEPVAN_ROUTING=by-key STEPVAN_BATCH=k STEPVAN_BATCH_MIN=2", func(s Settings) any { return s.Batch }, BatchK},
		{"DMLC_LOCAL=1 DMLC_PS_ROOT_URI=", func(s Settings) any { return s.RootURI }, "127.0.0.1"},
		{"DMLC_PS_ROOT_URI=[fd00::1]", func(s Settings) any { return s.RootAddr() }, "[fd00::1]:8123"},
		{"DMLC_PORT=9000 DMLC_NUM_PORTS=3", func(s Settings) any { return s.DataPorts() }, []int{9000, 9001, 9002}},
		{"STEPVAN_HUGEPAGES=0", func(s Settings) any { return s.Hugepages }, HugepagesOff},
		{"STEPMESH_BIND_CPU_CORE=yes", func(s Settings) any { return s.BindCPUCore }, true},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=4 DMLC_NUM_WORKER= DMLC_NUM_SERVER=", func(s Settings) any { return []int{s.NumWorker, s.NumServer, s.NumPeer} }, []int{0, 0, 4}},
		{"DMLC_ROLE=scheduler STEPVAN_NUM_PEER=4 DMLC_NUM_WORKER= DMLC_NUM_SERVER=", func(s Settings) any { return s.Peers() }, 4},
		{"STEPVAN_PEER_RING_BYTES=1m", func(s Settings) any { return s.PeerRing }, Bytes(1 << 20)},
		{"STEPVAN_HANDLES=16", func(s Settings) any { return s.Handles }, 16},
	}
	for _, c := range cases {
		t.Run(c.env, func(t *testing.T) {
			s, _ := read(t, c.env)
			require.Equal(t, c.is, c.want(s))
		})
	}
}

func TestMistakes(t *testing.T) {
	cases := []struct {
		env  string
		want []string // one error each; the text that it must begin with
	}{
		{"DMLC_ROLE=", []string{"DMLC_ROLE: is not set: set it to one of worker, server, scheduler, joint, peer"}},
		{"DMLC_ROLE=boss", []string{`DMLC_ROLE="boss": must be one of worker, server, scheduler, joint, peer`}},
		{"DMLC_ROLE=workr", []string{`DMLC_ROLE="workr": must be one of worker, server, scheduler, joint, peer; did you mean worker?`}},
		{"DMLC_NUM_WORKER= DMLC_NUM_SERVER=", []string{"DMLC_NUM_WORKER: is not set: set it to the number of worker nodes; instances", "DMLC_NUM_SERVER: is not set: set it to the number of server nodes; instances"}},
		{"DMLC_ROLE=scheduler DMLC_NUM_WORKER= DMLC_NUM_SERVER=", []string{"DMLC_NUM_WORKER: is not set: set it to the number of worker nodes; instances are nodes times DMLC_GROUP_SIZE; a cluster of peers needs STEPVAN_NUM_PEER instead", "DMLC_NUM_SERVER: is not set"}},
		{"DMLC_NUM_WORKER= DMLC_NUM_WORKERS=2", []string{"DMLC_NUM_WORKER: is not set: set it to the number of worker nodes; instances are nodes times DMLC_GROUP_SIZE; did you mean it when you set DMLC_NUM_WORKERS?"}},
		{"DMLC_NUM_WORKER=two", []string{`DMLC_NUM_WORKER="two": must be a whole number from 0 to 1000000`}},
		{"DMLC_NUM_WORKER=-1", []string{`DMLC_NUM_WORKER="-1": must be from 0 to 1000000`}},
		{"DMLC_NUM_WORKER=0", []string{`DMLC_NUM_WORKER="0": must be at least 1 where DMLC_ROLE is worker`}},
		{"DMLC_ROLE=scheduler DMLC_NUM_WORKER=0 DMLC_NUM_SERVER=0", []string{`DMLC_NUM_WORKER="0": must be at least 1 when DMLC_NUM_SERVER and STEPVAN_NUM_PEER are 0`}},
		{"DMLC_NUM_WORKER=0 DMLC_NUM_SERVER=0", []string{`DMLC_NUM_WORKER="0": must be at least 1 where DMLC_ROLE is worker`}},
		{"DMLC_ROLE=peer", []string{"STEPVAN_NUM_PEER: is not set: set it to the number of peer nodes; instances are nodes times DMLC_GROUP_SIZE"}},
		{"DMLC_ROLE=peer DMLC_NUM_WORKER= DMLC_NUM_SERVER= DMLC_NUM_PEER=2", []string{"STEPVAN_NUM_PEER: is not set: set it to the number of peer nodes; instances are nodes times DMLC_GROUP_SIZE; did you mean it when you set DMLC_NUM_PEER?"}},
		{"DMLC_ROLE=Peer STEPVAN_NUM_PEER=0", []string{`STEPVAN_NUM_PEER="0": must be at least 1 where DMLC_ROLE is peer`}},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=many", []string{`STEPVAN_NUM_PEER="many": must be a whole number from 0 to 1000000`}},
		{"DMLC_ROLE=peer STEPVAN_NUM_PEER=2 DMLC_NODE_RANK=2", []string{`DMLC_NODE_RANK="2": the rank is DMLC_NODE_RANK * DMLC_GROUP_SIZE + STEPMESH_GPU + DMLC_RANK_OFFSET = 2 and must be from 0 to 1: there are 2 peer instances`}},
		{"DMLC_ROLE=scheduler STEPVAN_NUM_PEER=0 DMLC_NUM_WORKER= DMLC_NUM_SERVER=1", []string{"DMLC_NUM_WORKER: is not set: set it to the number of worker nodes"}},
		{"DMLC_NUM_WORKER= STEPVAN_NUM_PEER=2", []string{"DMLC_NUM_WORKER: must be at least 1 where DMLC_ROLE is worker"}},
		{"STEPVAN_PEER_RING_BYTES=4KiB", []string{`STEPVAN_PEER_RING_BYTES="4KiB": must be from 64KiB to 1GiB`}},
		{"DMLC_PS_ROOT_URI=", []string{"DMLC_PS_ROOT_URI: is not set: set it to the host name or address of the scheduler"}},
		{"DMLC_PS_ROOT_URI=tcp://10.0.0.1", []string{`DMLC_PS_ROOT_URI="tcp://10.0.0.1": must be a host name or address without scheme`}},
		{"DMLC_PS_ROOT_URI=10.0.0.1:8123", []string{`DMLC_PS_ROOT_URI="10.0.0.1:8123": must be a host name or address without port: set DMLC_PS_ROOT_PORT to the port`}},
		{"DMLC_NODE_HOST=a/b", []string{`DMLC_NODE_HOST="a/b": must be one host name or address`}},
		{"DMLC_PS_ROOT_PORT=", []string{"DMLC_PS_ROOT_PORT: is not set: set it to the port of the scheduler"}},
		{"DMLC_PS_ROOT_PORT=0", []string{`DMLC_PS_ROOT_PORT="0": must be the port of the scheduler, 1 to 65535`}},
		{"DMLC_PS_ROOT_PORT=70000", []string{`DMLC_PS_ROOT_PORT="70000": must be from 0 to 65535`}},
		{"DMLC_GROUP_SIZE=0", []string{`DMLC_GROUP_SIZE="0": must be from 1 to 65536`}},
		{"STEPMESH_GPU=3", []string{`STEPMESH_GPU="3": STEPMESH_GPU + DMLC_RANK_OFFSET = 3 + 0 is the instance within the node and must be from 0 to 0`}},
		{"DMLC_RANK_OFFSET=-1", []string{
			`DMLC_RANK_OFFSET="-1": STEPMESH_GPU + DMLC_RANK_OFFSET = 0 + -1 is the instance`,
		}},
		{"DMLC_INSTANCE_ID=2 DMLC_GROUP_SIZE=2", []string{`DMLC_INSTANCE_ID="2": must be less than DMLC_GROUP_SIZE, which is 2`}},
		{"DMLC_NODE_RANK=2", []string{`DMLC_NODE_RANK="2": the rank is DMLC_NODE_RANK * DMLC_GROUP_SIZE + STEPMESH_GPU + DMLC_RANK_OFFSET = 2 and must be from 0 to 1: there are 2 worker instances`}},
		{"STEPVAN_RANK=7", []string{`STEPVAN_RANK="7": the rank must be from 0 to 1: there are 2 worker instances`}},
		{"STEPVAN_RANK=1 DMLC_NODE_RANK=0", []string{`STEPVAN_RANK="1": contradicts DMLC_NODE_RANK=0, by which the rank is 0`}},
		{"DMLC_PORT=65535 DMLC_NUM_PORTS=2", []string{`DMLC_PORT="65535": with DMLC_NUM_PORTS the last port is beyond 65535`}},
		{"DMLC_ROLE=scheduler DMLC_PORT=8122 DMLC_NUM_PORTS=2", []string{`DMLC_PORT="8122": the data ports, DMLC_NUM_PORTS of them, include DMLC_PS_ROOT_PORT`}},
		{"STEPVAN_VAN=quic", []string{`STEPVAN_VAN="quic": must be one of auto, tcp, shm, rdma, shm+rdma, mem`}},
		{"DMLC_PS_VAN_TYPE=fabric", []string{`DMLC_PS_VAN_TYPE="fabric": must be one of auto, tcp, shm, rdma, shm+rdma, mem`}},
		{"DMLC_ENABLE_RDMA=ibverbs DMLC_PS_VAN_TYPE=zmq", []string{`DMLC_PS_VAN_TYPE="zmq": contradicts DMLC_ENABLE_RDMA=ibverbs: unset one of them`}},
		{"DMLC_ENABLE_RDMA=zmq DMLC_PS_VAN_TYPE=shm", []string{`DMLC_PS_VAN_TYPE="shm": contradicts DMLC_ENABLE_RDMA=zmq: unset one of them`}},
		{"DMLC_ENABLE_RDMA=0 DMLC_PS_VAN_TYPE=rdma", []string{`DMLC_PS_VAN_TYPE="rdma": contradicts DMLC_ENABLE_RDMA=0: unset one of them`}},
		{"DMLC_LOCAL=1 DMLC_ENABLE_RDMA=ibverbs", []string{`DMLC_ENABLE_RDMA="ibverbs": RDMA needs a network, which DMLC_LOCAL=1 forbids`}},
		{"DMLC_LOCAL=perhaps", []string{`DMLC_LOCAL="perhaps": must be 1 or 0`}},
		{"STEPVAN_BATCH=lockstep STEPVAN_ROUTING=key", []string{`STEPVAN_BATCH="lockstep": lock-step batches need a request from every worker`}},
		{"STEPVAN_BATCH=lock-step STEPVAN_ROUTING=named", []string{`STEPVAN_BATCH="lock-step": lock-step batches need a request from every worker`}},
		{"STEPVAN_BATCH=k", []string{"STEPVAN_BATCH_MIN: must be at least 1 with STEPVAN_BATCH=k"}},
		{"STEPVAN_BATCH=any STEPVAN_BATCH_MIN=2", []string{`STEPVAN_BATCH_MIN="2": has a meaning with STEPVAN_BATCH=k only`}},
		{"STEPVAN_BATCH=k STEPVAN_BATCH_MIN=3", []string{`STEPVAN_BATCH_MIN="3": must be at most 2, the workers paired with a server`}},
		{"STEPVAN_SMALL_BYTES=1MiB STEPVAN_PIECE_BYTES=512KiB", []string{`STEPVAN_SMALL_BYTES="1MiB": must be at most STEPVAN_PIECE_BYTES, which is 512KiB`}},
		{"STEPVAN_CREDIT_BYTES=64KiB", []string{`STEPVAN_CREDIT_BYTES="64KiB": must be at least STEPVAN_PIECE_BYTES, which is 1MiB`}},
		{"STEPVAN_POOL_BYTES=12MB", []string{`STEPVAN_POOL_BYTES="12MB": must be a size in whole bytes, such as 65536, 64KiB or 1.5GiB`}},
		{"STEPVAN_POOL_BYTES=9999999TiB", []string{`STEPVAN_POOL_BYTES="9999999TiB": must be a size`}},
		{"STEPVAN_START_TIMEOUT=soon", []string{`STEPVAN_START_TIMEOUT="soon": must be a time such as 500ms`}},
		{"STEPVAN_START_TIMEOUT=-5s", []string{`STEPVAN_START_TIMEOUT="-5s": must be a time such as 500ms`}},
		{"STEPVAN_START_TIMEOUT=0", []string{`STEPVAN_START_TIMEOUT="0": must be from 100ms to 8760h`}},
		{"STEPVAN_START_TIMEOUT=1e300", []string{`STEPVAN_START_TIMEOUT="1e300": must be a time such as 500ms`}},
		{"PS_HEARTBEAT_INTERVAL=5 PS_HEARTBEAT_TIMEOUT=5", []string{`PS_HEARTBEAT_TIMEOUT="5": must be greater than PS_HEARTBEAT_INTERVAL, which is 5s`}},
		{"PS_HEARTBEAT_INTERVAL=0.0001", []string{`PS_HEARTBEAT_INTERVAL="0.0001": an interval below 1ms is only noise`}},
		{"PS_HEARTBEAT_TIMEOUT=1ms", []string{`PS_HEARTBEAT_TIMEOUT="1ms": an interval below 1ms is only noise`}},
		{"PS_DROP_MSG=101", []string{`PS_DROP_MSG="101": must be from 0 to 100`}},
		{"PS_VERBOSE=1 STEPVAN_LOG_LEVEL=error", []string{`PS_VERBOSE="1": contradicts STEPVAN_LOG_LEVEL=error: unset one of them`}},
		{"STEPMESH_BACKEND=CPU STEPMESH_BAKCEND=GPU", []string{`STEPMESH_BAKCEND="GPU": contradicts STEPMESH_BACKEND=CPU: unset one of them`}},
		{"STEPMESH_BIND_CPU_CORE=1 STEPMESH_CPU_CORES_PER_GPU=50", []string{`STEPMESH_CPU_CORES_PER_GPU="50": must be at most STEPMESH_CPU_CORES_PER_SOCKET`}},
		{"STEPVAN_RDMA_DEVICES=mlx5_0:x", []string{`STEPVAN_RDMA_DEVICES="mlx5_0:x": the port of "mlx5_0:x" must be a number from 1 to 255`}},
		{"STEPVAN_RDMA_GID_INDEX=-2", []string{`STEPVAN_RDMA_GID_INDEX="-2": `}},
		{"STEPVAN_RDMA_QPS=3 STEPVAN_RDMA_PORTS=3", []string{`STEPVAN_RDMA_QPS="3": a connection has at most 8 queue pairs in all`}},
		{"STEPVAN_RDMA_PORTS=2 STEPVAN_RDMA_WINDOWS=1", []string{`STEPVAN_RDMA_PORTS="2": memory windows serve one queue pair each`}},
		{"DMLC_INTERFACE=/dev/eth0", []string{`DMLC_INTERFACE="/dev/eth0": must be the name of a network interface`}},
		{"DMLC_ROLE=boss DMLC_PS_ROOT_PORT=x STEPVAN_BATCH=k PS_DROP_MSG=-1", []string{
			`DMLC_ROLE="boss": must be one of`, `DMLC_PS_ROOT_PORT="x": must be a whole number from 0 to 65535`,
			`PS_DROP_MSG="-1": must be from 0 to 100`, "STEPVAN_BATCH_MIN: must be at least 1",
		}},
	}
	for _, c := range cases {
		t.Run(c.env, func(t *testing.T) {
			_, _, err := FromEnv(environment(base, c.env))
			got := mistakes(t, err)
			require.Len(t, got, len(c.want), "%q", got)
			for i := range got {
				require.True(t, strings.HasPrefix(got[i], c.want[i]), "got  %s\nwant %s", got[i], c.want[i])
			}
		})
	}
}

func TestAnEmptyEnvironmentNamesEverythingThatIsRequired(t *testing.T) {
	s, warnings, err := FromEnv(environment())
	require.Empty(t, warnings)
	require.Len(t, mistakes(t, err), 5)
	require.Equal(t, Default(), s, "what is wrong has its default")
	require.ErrorContains(t, Default().Validate(), "DMLC_ROLE: is not set")
}

func TestWarnings(t *testing.T) {
	cases := []struct{ env, want string }{
		{"STEPVAN_VNA=tcp", `STEPVAN_VNA="tcp": is not a setting of stepvan and is ignored; did you mean STEPVAN_VAN?`},
		{"STEPVAN_ROLE=worker", `STEPVAN_ROLE="worker": is not a setting of stepvan and is ignored; did you mean DMLC_ROLE?`},
		{"DMLC_NODE_RNAK=1", `DMLC_NODE_RNAK="1": is not a setting of stepvan and is ignored; did you mean DMLC_NODE_RANK?`},
		{"PS_HEARTBEAT_TIMEUOT=1", `PS_HEARTBEAT_TIMEUOT="1": is not a setting of stepvan and is ignored; did you mean PS_HEARTBEAT_TIMEOUT?`},
		{"STEPMESH_QUITE_SOMETHING_ELSE=1", "STEPMESH_QUITE_SOMETHING_ELSE=\"1\": is not a setting of stepvan and is ignored; `stepvan env` lists them"},
		{"DMLC_NUM_PEER=4", `DMLC_NUM_PEER="4": is not a setting of stepvan and is ignored; did you mean STEPVAN_NUM_PEER?`},
		{"STEPMESH_BAKCEND=CPU", `STEPMESH_BAKCEND="CPU": is misspelt but accepted: write STEPMESH_BACKEND`},
		{"BYTEPS_LOCAL_SIZE=8 STEPAF_A=1 DMLC_ENABLE_UCX=1 DMLC_USE_KUBERNETES=0", "BYTEPS_LOCAL_SIZE, DMLC_ENABLE_UCX, DMLC_USE_KUBERNETES, STEPAF_A: has no meaning in stepvan and is ignored: unset it"},
		{"STEPVAN_VAN=tcp DMLC_ENABLE_RDMA=ibverbs", `DMLC_ENABLE_RDMA="ibverbs": is overruled by STEPVAN_VAN=tcp: unset it`},
		{"PS_HEARTBEAT_INTERVAL=0", `PS_HEARTBEAT_INTERVAL="0": heartbeats are off: a peer that falls silent is noticed only when its connection breaks`},
	}
	for _, c := range cases {
		t.Run(c.env, func(t *testing.T) {
			_, warnings := read(t, c.env)
			require.Len(t, warnings, 1)
			require.Equal(t, c.want, warnings[0].String())
		})
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	_, warnings, err := FromEnv(environment(base, "PATH=/bin PS1=$ PS_FORMAT=pid STEPVAN_TEST_CHILD=1 STEPVANISH=1",
		"STEPMESH_CONNECTOR_DEBUG=true STEPMESH_SCHEDULER_STARTED=1 STEPMESH_SCHEDULER_STARTED_0=1 STEPAF_GPU=0"))
	require.NoError(t, err)
	require.Empty(t, warnings)
}

func TestFromProcess(t *testing.T) {
	for i := range table {
		for _, n := range table[i].names() {
			t.Setenv(n, "")
		}
	}
	for _, w := range strings.Fields(base) {
		name, value, _ := strings.Cut(w, "=")
		t.Setenv(name, value)
	}
	s, _, err := FromProcess()
	require.NoError(t, err)
	require.Equal(t, 8123, s.RootPort)
}

func TestLookup(t *testing.T) {
	lookup := Lookup([]string{"A=1", "B=", "A=2=3"})
	value, ok := lookup("A")
	require.True(t, ok)
	require.Equal(t, "2=3", value)
	_, ok = lookup("B")
	require.True(t, ok)
	_, ok = lookup("C")
	require.False(t, ok)
}
