package ps_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

func TestStopTwice(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 1})
			c.stop()
			c.stop() // returns at once, without error
			for _, n := range c.all {
				<-n.Done()
				require.NoError(t, n.Err())
			}
		})
	}
}

func TestConcurrentStops(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1})
	twice := append(append([]*ps.Node{}, c.all...), c.all...)
	each(t, twice, func(n *ps.Node) error { return n.Stop(limited(t)) })
}

// operations are all of a node's, called with arguments that are good enough to be refused.
var operations = []struct {
	name   string
	worker bool // for workers
	server bool
	call   func(context.Context, *ps.Node) error
}{
	{"PushPull", true, false, func(_ context.Context, n *ps.Node) error { _, err := n.PushPull(nil, nil, nil, nil); return err }},
	{"Do", true, false, func(_ context.Context, n *ps.Node) error { _, err := n.Do(&ps.Exchange{}); return err }},
	{"GetBatch", false, true, func(ctx context.Context, n *ps.Node) error {
		_, err := n.GetBatch(ctx, ps.DefaultPolicy)
		return err
	}},
	{"Respond", false, true, func(_ context.Context, n *ps.Node) error { _, err := n.Respond(nil, 0); return err }},
	{"RespondVec", false, true, func(_ context.Context, n *ps.Node) error {
		_, err := n.RespondVec(tensor.Tensor{}, nil, nil)
		return err
	}},
	{"RegisterRecvBuffer", false, true, func(_ context.Context, n *ps.Node) error {
		_, err := n.RegisterRecvBuffer(tensor.Tensor{}, nil, nil)
		return err
	}},
	{"Barrier", true, true, func(ctx context.Context, n *ps.Node) error { return n.Barrier(ctx, ps.Servers|ps.Workers, true) }},
}

func TestUseAfterStop(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1})
	c.stop()
	for _, n := range c.all {
		for _, op := range operations {
			if n.Worker() != nil && op.worker || n.Server() != nil && op.server {
				require.ErrorIs(t, op.call(limited(t), n), stepvan.ErrClosed, "%s of %s", op.name, n)
			}
		}
	}
}

func TestOperationsOfOtherRoles(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1})
	for _, n := range c.all {
		for _, op := range operations {
			if n.Worker() != nil && op.worker || n.Server() != nil && op.server || op.name == "Barrier" {
				continue
			}
			err := op.call(limited(t), n)
			require.ErrorIs(t, err, stepvan.ErrInvalid, "%s of %s", op.name, n)
			require.ErrorContains(t, err, string(n.Role()))
			require.ErrorContains(t, err, "DMLC_ROLE")
		}
	}
}

func TestBarrierOfOthers(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1})
	for _, err := range []error{
		c.workers[0].Barrier(limited(t), ps.Servers, true),
		c.servers[0].Barrier(limited(t), ps.Workers, true),
		c.workers[0].Barrier(limited(t), 0, true),
		c.scheduler.Barrier(limited(t), ps.Servers|ps.Workers, true),
	} {
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

// The scheduler's program has nothing to do: Stop returns when all have left, and not before.
func TestSchedulerStopsFirst(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1})
	stopped := make(chan error, 1)
	go func() { stopped <- c.scheduler.Stop(limited(t)) }()
	require.NoError(t, c.workers[0].Barrier(limited(t), ps.Workers, true))
	served := make(chan error, 1)
	go func() { served <- serve(limited(t), c.servers[0]) }()
	require.NoError(t, work(limited(t), c.workers[0], 100, 10))
	select {
	case err := <-stopped:
		t.Fatalf("the scheduler left first: %v", err)
	default:
	}
	each(t, []*ps.Node{c.workers[0], c.servers[0]}, func(n *ps.Node) error { return n.Stop(limited(t)) })
	require.NoError(t, <-served)
	require.NoError(t, <-stopped)
}

func TestStopTimeout(t *testing.T) {
	c := start(t, overMem(), shape{workers: 2, servers: 1, edit: func(s *ps.Settings) { s.StopTimeout = 100 * time.Millisecond }})
	err := c.workers[0].Stop(limited(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, err.Error(), "gave up after ")
	require.NotContains(t, err.Error(), "context deadline exceeded")
	require.ErrorIs(t, c.workers[0].Barrier(limited(t), ps.Workers, true), stepvan.ErrClosed)
}

// A request in flight when its worker stops fails; the server's answer goes nowhere.
func TestStopWithRequestsInFlight(t *testing.T) {
	c := start(t, overTCP, shape{workers: 1, servers: 1})
	cl, err := newClient(c.workers[0], 0, 1<<20)
	require.NoError(t, err)
	h, err := cl.begin()
	require.NoError(t, err)
	stopped := make(chan error, 3)
	go func() { stopped <- c.workers[0].Stop(limited(t)) }()
	require.Error(t, h.Wait(limited(t)))
	for _, n := range []*ps.Node{c.servers[0], c.scheduler} {
		go func() { stopped <- n.Stop(limited(t)) }()
	}
	for range 3 {
		require.NoError(t, <-stopped)
	}
}

func TestTraceFiles(t *testing.T) {
	for pattern, names := range map[string][]string{
		"trace.json":           {"trace-worker-0.json", "trace-server-0.json"},
		"{rank}.{role}.json":   {"0.worker.json", "0.server.json"},
		"plain":                {"plain-worker-0", "plain-server-0"},
		"deeper/{role}-{rank}": {""}, // no such directory
	} {
		t.Run(names[0], func(t *testing.T) {
			dir := t.TempDir()
			c := start(t, overMem(), shape{workers: 1, servers: 1, edit: func(s *ps.Settings) { s.TraceFile = filepath.Join(dir, pattern) }})
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			require.NoError(t, work(limited(t), c.workers[0], 100, 3))
			results := make(chan error, 3)
			for _, n := range c.all {
				go func() { results <- n.Stop(limited(t)) }()
			}
			require.NoError(t, <-served)
			failed := 0
			for range c.all {
				if err := <-results; err != nil {
					require.ErrorContains(t, err, "STEPVAN_TRACE_FILE")
					failed++
				}
			}
			if names[0] == "" {
				require.Equal(t, 2, failed)
				return
			}
			require.Zero(t, failed)
			for _, name := range names {
				b, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				require.True(t, json.Valid(b))
				require.Contains(t, string(b), "worker 0")
			}
		})
	}
}
