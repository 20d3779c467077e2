package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/limit"
	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/bench/work"
)

func TestDefaults(t *testing.T) {
	o, err := Options{Node: []string{"x"}}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Options{
		Workload: Echo, Van: TCP, Workers: 1, Servers: 1, Push: 8, Pull: 8, Inflight: 1,
		Progress: "auto", Nodes: GoNodes, Duration: defaultDuration, Rounds: defaultRounds, Node: []string{"x"},
	}, o)
	o, err = Options{Workload: AFD, Van: Mem, Count: 5}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, []Size{896 << 10, 1792 << 10}, []Size{o.Push, o.Pull})
	require.Zero(t, o.Duration, "a count says how long")
	o, err = Options{Workload: AFD3, Push: 8, Van: Mem}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, []any{Size(16), 3, 273 * time.Microsecond}, []any{o.Pull, o.Inflight, o.Compute})
	o, err = Options{Workload: Weights, Van: Mem}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, []Size{256 << 20, 8}, []Size{o.Push, o.Pull})
	for w, want := range map[Workload][2]int{Incast: {8, 1}, Fanout: {1, 4}, Barrier: {1, 1}, Pairs: {2, 2}} {
		o, err = Options{Workload: w, Node: []string{"x"}}.withDefaults()
		require.NoError(t, err)
		require.Equal(t, want, [2]int{o.Workers, o.Servers}, w)
	}
}

// The limit has the van's kind and the workload's sizes.
func TestLimitOfOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want limit.Spec
	}{
		"socket ping-pong":       {Options{}, limit.Spec{Kind: limit.Socket, Push: 8, Pull: 8, Parties: 2}},
		"unix socket ping-pong":  {Options{Van: Unix}, limit.Spec{Kind: limit.UnixSocket, Push: 8, Pull: 8, Parties: 2}},
		"netpoll ping-pong":      {Options{Progress: "park"}, limit.Spec{Kind: limit.Netpoll, Push: 8, Pull: 8, Parties: 2}},
		"unix netpoll ping-pong": {Options{Van: Unix, Progress: "park"}, limit.Spec{Kind: limit.UnixNetpoll, Push: 8, Pull: 8, Parties: 2}},
		"socket stream":          {Options{Workload: Weights}, limit.Spec{Kind: limit.Socket, Push: 256 << 20, Pull: 8, Parties: 2}},
		"copy and flag":          {Options{Van: Shm, Progress: "park"}, limit.Spec{Kind: limit.Memory, Push: 8, Pull: 8, Parties: 2}},
		"flag":                   {Options{Workload: AFD, InPlace: true, Van: Shm}, limit.Spec{Kind: limit.Memory, Parties: 2}},
		"bare picks": {Options{Workload: Replay, Van: Shm}, limit.Spec{
			Kind: limit.Memory, Push: 8, Pull: 16 << 20, Parties: 2, Rows: limit.Rows{Bytes: 400, Buffer: 16 << 20 / 400 * 400},
		}},
		"one worker":     {Options{Workload: Incast, Processes: Processes{Together: true}}, limit.Spec{Kind: limit.Socket, Push: 8, Pull: 8, Parties: 2, Inside: true}},
		"ideal pipeline": {Options{Workload: AFD3, Push: 1}, limit.Spec{Kind: limit.Socket, Push: 1, Pull: 2, Parties: 2}},
		"go nodes":       {Options{Nodes: TorchNodes, Python: []string{"python"}}, limit.Spec{Kind: limit.Socket, Push: 8, Pull: 8, Parties: 2}},
		"bare processes": {Options{Workload: Start}, limit.Spec{Kind: limit.Socket, Push: 8, Pull: 8, Parties: 2}},
	} {
		c.o.Node = []string{"x"}
		o, err := c.o.withDefaults()
		require.NoError(t, err, name)
		require.Equal(t, name, o.limit().name())
		require.Equal(t, c.want, o.limit().spec(), name)
	}
	o, err := Options{Workload: Fanout, Van: Mem}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, limit.Spec{Kind: limit.Memory, Push: 8, Pull: 8, Parties: 5, Inside: true}, o.limit().spec())
	require.Equal(t, 4, o.limit().servers())
}

// Two processes in Python, and a scheduler that has nothing to do. They are compared with the same in Go.
func TestAPeerIsNoNode(t *testing.T) {
	o, err := Options{Nodes: NixlNodes, Node: []string{"stepvan", "node"}, Python: []string{"python"}}.withDefaults()
	require.NoError(t, err)
	plan := o.plan(nodeArgs{Control: "x"}, nil)
	require.Equal(t, []string{"python", "-m", "stepvan._bench", "--tensors=nixl", "--control=x"}, plan.Worker)
	require.Equal(t, plan.Worker, plan.Server)
	require.Equal(t, []string{"stepvan", "node", "--control=x", "--bare"}, plan.Scheduler)
	base, compared := o.referenceOptions()
	require.True(t, compared)
	require.Equal(t, GoNodes, base.Nodes)
}

func TestIdealPipeline(t *testing.T) {
	o := &Options{Workload: AFD3, Inflight: 3, Compute: 100 * time.Microsecond}
	require.InDelta(t, 300, o.limit().from(50), 1e-9, "the computations are the slowest stages")
	require.InDelta(t, 600, o.limit().from(200), 1e-9, "the exchange is")
	o.Inflight = 1
	require.InDelta(t, 250, o.limit().from(50), 1e-9, "nothing overlaps")
	o.Workload = AFD
	require.InDelta(t, 50, o.limit().from(50), 1e-9)
}

func TestNamesOfMeasurements(t *testing.T) {
	for want, o := range map[string]Options{
		"tcp echo 1w1s 8B/8B":                                        {},
		"shm afd 1w1s 896KiB/1.75MiB in place spin":                  {Workload: AFD, Van: Shm, InPlace: true, Progress: "spin"},
		"unix afd3 1w1s 1KiB/2KiB x3 compute 273µs":                  {Workload: AFD3, Van: Unix, Push: 1024},
		"tcp incast 64w1s 8B/8B one process":                         {Workload: Incast, Workers: 64, Processes: Processes{Together: true}},
		"mem barrier 1w1s":                                           {Workload: Barrier, Van: Mem, Processes: Processes{Together: true}},
		"tcp echo 1w1s 8B/8B beside 1GiB core 2":                     {Bulk: 1 << 30, Cores: Cores{Pin: 2}},
		"shm afd 1w1s nixl 896KiB/1.75MiB":                           {Workload: AFD, Van: Shm, Nodes: NixlNodes},
		"shm echo 1w1s 8B/8B sleep 1ms busy cores":                   {Van: Shm, Work: work.Spec{Sleep: true, Think: work.Constant(time.Millisecond)}, Cores: Cores{Busy: true}},
		"shm pairs 2w2s 8B/8B quota 1.5 park":                        {Workload: Pairs, Van: Shm, Cores: Cores{Quota: 1.5}, Progress: "park"},
		"shm p2p 2p 1KiB/1KiB":                                       {Workload: P2P, Van: Shm, Push: 1024},
		"tcp put 2p 8B/8B":                                           {Workload: Put},
		"shm particles 2p 8B/8B apart":                               {Workload: Particles, Van: Shm, Processes: Processes{Apart: true}},
		"tcp bus 2p 16KiB":                                           {Workload: Bus},
		"shm bus 2p 1KiB apart":                                      {Workload: Bus, Van: Shm, Push: 1024, Processes: Processes{Apart: true}},
		"shm refit 8p 1GiB tp4 to tp2ep2 dim 0 shared":               {Workload: Refit, Van: Shm},
		"tcp refit 2p 1GiB tp4 to tp2ep2 dim 1 rows 64 torch 1 to 1": {Workload: Refit, Refit: refit.Spec{Dim: 1, Row: 64, Memory: refit.Torch, Pair: true}},
		"shm refit 6p tp4 to dp2 80 moves destinations":              {Workload: Refit, Van: Shm, Refit: refit.Spec{Moves: 80, Memory: refit.One}},
		"shm batch 8w1s torch 8B/8B x64":                             {Workload: Batch, Van: Shm, Nodes: TorchNodes},
	} {
		require.Equal(t, want, o.String())
	}
}

func TestMistakesInOptions(t *testing.T) {
	node := []string{"x"}
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"unknown words":    {Options{Workload: "w", Van: "v", Progress: "p", Nodes: "n", Node: node}, []string{`--workload "w" is unknown: write echo, afd, afd3, incast, fanout, pairs, weights, barrier, batch, idle, start`, `--van "v" is unknown: write tcp, unix, shm, rdma, mem`, `--progress "p"`, `--nodes "n" is unknown: write go, numpy, torch`}},
		"numbers":          {Options{Workers: -1, Servers: 1 << 20, Inflight: -2, Rounds: -1, Count: -1, Duration: -time.Second, Node: node}, []string{"--workers", "--servers", "--inflight", "--rounds", "--count", "--duration"}},
		"sizes":            {Options{Push: -1, Pull: -1, Bulk: -1, Cores: Cores{Pin: -1, Quota: -1}, Compute: -1, Node: node}, []string{"--push", "--pull", "--bulk", "--pin", "--quota", "--compute"}},
		"echo answers":     {Options{Pull: 16, Node: node}, []string{"--pull 16B differs from --push 8B"}},
		"barrier of bytes": {Options{Workload: Barrier, Push: 16, Node: node}, []string{"--push 16B has no meaning"}},
		"many barriers":    {Options{Workload: Barrier, Inflight: 2, Node: node}, []string{"--inflight 2 has no meaning"}},
		"bulk with afd":    {Options{Workload: AFD, Bulk: 1, Node: node}, []string{"--bulk needs --workload echo"}},
		"echo in place":    {Options{InPlace: true, Node: node}, []string{"--in-place needs --workload afd or afd3"}},
		"echo computes":    {Options{Compute: 1, Node: node}, []string{"--compute needs --workload afd3"}},
		"incast of one":    {Options{Workload: Incast, Workers: 1, Node: node}, []string{"--workers 1 is what --workload incast is compared with"}},
		"start in process": {Options{Workload: Start, Van: Mem}, []string{"use --van tcp, unix or shm"}},
		"start together":   {Options{Workload: Start, Processes: Processes{Together: true}}, []string{"without --one-process"}},
		"profile of start": {Options{Workload: Start, Profile: "x", Node: node}, []string{"--profile"}},
		"pin one process":  {Options{Van: Mem, Cores: Cores{Pin: 1}}, []string{"taskset"}},
		"batch answers":    {Options{Workload: Batch, Pull: 16, Node: node}, []string{"--pull 16B differs from --push 8B"}},
		"barriers, Python": {Options{Workload: Barrier, Nodes: NumpyNodes, Node: node}, []string{"--workload barrier does not work with --nodes numpy: use echo, afd"}},
		"mem in Python":    {Options{Van: Mem, Nodes: TorchNodes}, []string{"one process does not work"}},
		"bulk in Python":   {Options{Bulk: 8, Nodes: TorchNodes, Node: node}, []string{"--bulk does not work"}},
		"profile, Python":  {Options{Profile: "x", Nodes: TorchNodes, Node: node}, []string{"--profile does not work"}},
		"weights of NIXL":  {Options{Workload: Weights, Nodes: NixlNodes, Node: node}, []string{"--workload weights does not work with --peer nixl: use echo, afd or refit"}},
		"NIXL in process":  {Options{Nodes: NixlNodes, Processes: Processes{Together: true}}, []string{"one process does not work with --peer nixl"}},
		"NIXL over unix":   {Options{Van: Unix, Nodes: NixlNodes, Node: node}, []string{"--van unix does not work with --peer nixl: use shm, tcp or rdma"}},
		"many of NIXL":     {Options{Workers: 2, Nodes: NixlNodes, Node: node}, []string{"more than one worker, server or exchange in flight does not work"}},
		"NIXL, in flight":  {Options{Inflight: 2, Nodes: NixlNodes, Node: node}, []string{"more than one worker, server or exchange in flight does not work"}},
		"NIXL in place":    {Options{Workload: AFD, InPlace: true, Nodes: NixlNodes, Node: node}, []string{"--in-place does not work with --peer nixl"}},
		"NIXL sleeps":      {Options{Progress: "park", Nodes: NixlNodes, Node: node}, []string{"--progress park does not work with --peer nixl: use auto or spin"}},
		"sleep how long":   {Options{Work: work.Spec{Sleep: true}, Node: node}, []string{"--sleep needs --think"}},
		"unlike pairs":     {Options{Workload: Pairs, Workers: 3, Servers: 2, Node: node}, []string{"--servers 2 differs from --workers 3"}},
		"pairs in process": {Options{Workload: Pairs, Van: Mem}, []string{"--workload pairs is about processes"}},
		"quota in process": {Options{Van: Mem, Cores: Cores{Quota: 1}}, []string{"--quota and --busy are for processes"}},
		"quota of starts":  {Options{Workload: Start, Cores: Cores{Quota: 1}, Node: node}, []string{"--quota and --busy do not go with --workload start"}},
		"busy and incast":  {Options{Workload: Incast, Cores: Cores{Busy: true}, Node: node}, []string{"--quota and --busy do not go with --workload incast"}},
		"a tiny quota":     {Options{Cores: Cores{Quota: 0.001}, Node: node}, []string{"--quota 0.001 is too small: the kernel takes 0.01 at least"}},
		"busy, in Python":  {Options{Nodes: NumpyNodes, Cores: Cores{Busy: true}, Work: work.Spec{Think: work.Constant(1)}, Node: node}, []string{"--busy with a server that computes does not work with --nodes numpy: add --sleep"}},
		"refit of echo":    {Options{Refit: refit.Spec{Pair: true}, Node: node}, []string{"need --workload refit (got echo)"}},
		"p2p of three":     {Options{Workload: P2P, Servers: 2, Node: node}, []string{"--workload p2p is between two peers"}},
		"p2p in flight":    {Options{Workload: P2P, Inflight: 2, Node: node}, []string{"--inflight 2 does not go with --workload p2p"}},
		"p2p answers":      {Options{Workload: P2P, Pull: 16, Node: node}, []string{"--pull 16B differs from --push 8B"}},
		"bus answers":      {Options{Workload: Bus, Pull: 16, Node: node}, []string{"--pull 16B has no meaning for --workload bus"}},
		"bus inside":       {Options{Workload: Bus, Van: Mem, Processes: Processes{Apart: true}}, []string{"--apart is about processes"}},
		"agents of put":    {Options{Workload: Put, Processes: Processes{Apart: true}, Node: node}, []string{"--apart needs --workload bus or particles (got put)"}},
		"put answers":      {Options{Workload: Put, Pull: 16, Node: node}, []string{"--pull 16B has no meaning for --workload put"}},
		"refit in process": {Options{Workload: Refit, Van: Mem}, []string{"--workload refit is about processes"}},
		"refit over RDMA":  {Options{Workload: Refit, Van: RDMA, Node: node}, []string{"--van rdma has no limit"}},
		"refit pushes":     {Options{Workload: Refit, Push: 16, Node: node}, []string{"use --bytes"}},
		"refit of workers": {Options{Workload: Refit, Workers: 3, Node: node}, []string{"use --from and --to"}},
		"refit mistaken":   {Options{Workload: Refit, Refit: refit.Spec{Dim: 2}, Node: node}, []string{"--dim is out of range"}},
		"refit, quota":     {Options{Workload: Refit, Cores: Cores{Quota: 1}, Node: node}, []string{"--quota and --busy do not go with --workload refit"}},
		"refit in Python":  {Options{Workload: Refit, Nodes: TorchNodes, Node: node}, []string{"--workload refit does not work with --nodes torch: use echo"}},
		"echo of gloo":     {Options{Nodes: GlooNodes, Node: node}, []string{"--workload echo does not work with --peer gloo: use refit"}},
		"no interpreter":   {Options{Nodes: TorchNodes, Node: node}, []string{"Options.Python is missing"}},
		"no program":       {Options{}, []string{"Options.Node is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), c.o)
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}
