package stress

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// Each of two machines has a worker and a server. The first one is ended without a word, in the middle of exchanges.
// Every node of the second notices within PS_HEARTBEAT_TIMEOUT and a second, and continues with the others.
// scripts/test-rdma.sh runs this test in two machines. By files in STRESS_TEST_HOSTS they say how far they are.
func TestTwoHosts(t *testing.T) {
	folder := os.Getenv("STRESS_TEST_HOSTS")
	if folder == "" {
		t.Log("this is not one of two machines")
		return
	}
	say := func(what string) { require.NoError(t, os.WriteFile(filepath.Join(folder, what), nil, 0o644)) }
	if os.Getenv("RDMAVM_HOST") == "1" {
		h := joinHost(t, 0, os.Getenv("RDMAVM_IP1"))
		say("listening")
		h.started()
		h.worker.tell(command{Do: doRun, Count: 1 << 40})
		h.server.await(evEnded, nil) // it does not come: the machine ends
		return
	}
	h := joinHost(t, 1, os.Getenv("RDMAVM_IP0"))
	h.started()
	h.worker.tell(command{Do: doMark, Lane: 0, Count: 200})
	h.worker.tell(command{Do: doRun, Count: 1 << 40})
	h.worker.await(evMark, nil)
	say("exchanged")

	lost := h.worker.await(evLost, nil)
	require.Contains(t, lost.Text, "server 0")
	var worst time.Duration
	for _, p := range []*child{h.worker, h.server} {
		for range 2 { // both nodes of the other machine
			worst = max(worst, since(p.await(evDead, nil).At, lost.Last))
		}
	}
	worst = max(worst, since(lost.At, lost.Last))
	require.LessOrEqual(t, worst, hostSilence+time.Second)
	t.Logf("noticed %v after the last answer", worst.Round(time.Millisecond))

	h.worker.await(evFreed, nil)
	h.worker.tell(command{Do: doFinish, Count: 100})
	h.worker.await(evRan, func(e event) bool { return e.Lane == 1 })
	h.worker.tell(command{Do: doStop})
	for _, p := range []*child{h.worker, h.server, h.scheduler} {
		require.Empty(t, p.end(), p.name)
	}
}

// hostSilence is PS_HEARTBEAT_TIMEOUT of these clusters. Emulated processors are slow.
const hostSilence = 5 * time.Second

// hostsPort is where the scheduler listens: no node can ask another machine for it.
const hostsPort = 7470

// hostNodes are the nodes of one machine.
type hostNodes struct{ scheduler, server, worker *child }

// joinHost starts the nodes with a rank, at the address of the scheduler; the last machine has that as well.
func joinHost(t *testing.T, rank int, root string) hostNodes {
	t.Helper()
	c := shape{workers: 2, servers: 2, work: work{Loads: []load{small}, Apart: true}, edit: func(s *ps.Settings) {
		s.RootURI, s.HeartbeatInterval, s.HeartbeatTimeout = root, hostSilence/5, hostSilence
	}}
	cl := &cluster{t: t, dir: private(t), port: hostsPort}
	var h hostNodes
	if rank == 1 {
		h.scheduler = cl.add(overRDMA, c, ps.RoleScheduler, 0)
	}
	h.server = cl.add(overRDMA, c, ps.RoleServer, rank)
	h.worker = cl.add(overRDMA, c, ps.RoleWorker, rank)
	return h
}

// started waits until the cluster has, with tensors over RDMA.
func (h hostNodes) started() {
	for _, p := range []*child{h.server, h.worker} {
		e := p.await(evStarted, nil)
		require.Equal(p.t, overRDMA.name, e.Text, "%s uses another van", p.name)
	}
}
