package ps_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
)

// panicAfter has one node panic on purpose at a request or response that arrives.
func panicAfter(name string, count int, locked bool) map[string]func(*ps.Settings) {
	return map[string]func(*ps.Settings){name: func(s *ps.Settings) { s.PanicAfter, s.PanicLocked = count, locked }}
}

// page is where a test's log is written to.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// internal requires that an error is one of the library that names the node.
func internal(t *testing.T, err error, node string) *stepvan.InternalError {
	t.Helper()
	var e *stepvan.InternalError
	require.ErrorAs(t, err, &e)
	require.Equal(t, node, e.Node)
	return e
}

// A panic while a worker's or a server's bytes are moved ends that node, and nothing else of the process. Its waits and
// operations return the error, and Stop returns it at once. The other nodes hear of a death.
func TestAPanicEndsTheNode(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name+"/worker", func(t *testing.T) {
			log := &page{}
			c := start(t, van, shape{workers: 1, servers: 1, each: panicAfter("worker 0", 3, false),
				opts: []ps.Option{ps.ContainPanics(), ps.WithLogger(zerolog.New(log))}})
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			err := work(limited(t), c.workers[0], 100_000, 100)
			e := internal(t, err, "worker 0")
			require.Contains(t, e.Peer, "server 0 (")
			require.Contains(t, e.Op, "response (number ")
			require.Contains(t, e.Panic, "on purpose")
			require.Contains(t, e.Where, "link.(*rehearsal).countArrival (break.go:")
			require.NotEmpty(t, e.Version)
			requireEnded(t, c.workers[0], "worker 0")
			err = <-served
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.ErrorContains(t, err, "worker 0")
			require.Error(t, c.servers[0].Stop(limited(t)))
			require.NoError(t, c.scheduler.Stop(limited(t)))
			require.Contains(t, log.String(), "internal error: stepvan")
			require.Contains(t, log.String(), "goroutine ", "the stack")
		})
		t.Run(van.name+"/server", func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 1, each: panicAfter("server 0", 5, false), opts: []ps.Option{ps.ContainPanics()}})
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			worked := make(chan error, 2)
			for _, w := range c.workers {
				go func() { worked <- work(limited(t), w, 100, 100) }()
			}
			internal(t, <-served, "server 0")
			requireEnded(t, c.servers[0], "server 0")
			for range c.workers {
				err := <-worked
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "server 0")
			}
		})
	}
}

// requireEnded holds a node that a panic has ended to what it says from then on.
func requireEnded(t *testing.T, n *ps.Node, name string) {
	t.Helper()
	select {
	case <-n.Done():
	case <-limited(t).Done():
		t.Fatal("Done is not closed")
	}
	internal(t, n.Err(), name)
	internal(t, n.Barrier(limited(t), ps.Workers|ps.Servers, true), name)
	if n.Worker() != nil {
		_, err := n.PushPull(nil, nil, nil, nil)
		internal(t, err, name)
	} else {
		_, err := n.GetBatch(limited(t), ps.AnyReady)
		internal(t, err, name)
	}
	internal(t, n.Stop(limited(t)), name)
	require.NoError(t, n.Stop(limited(t)))
}

// All waits end: for answers, in a barrier, in Stop of a joint node's other role.
func TestAPanicWakesAllWaits(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1, opts: []ps.Option{ps.ContainPanics()}})
			w := c.workers[0]
			results := make(chan error, 9)
			for i := range 8 {
				cl, err := newClient(w, i, 64)
				require.NoError(t, err)
				h, err := cl.begin()
				require.NoError(t, err)
				go func() { results <- h.Wait(limited(t)) }()
			}
			go func() { results <- w.Barrier(limited(t), ps.Workers|ps.Servers, true) }()
			func() {
				defer func() { internal(t, w.Panicked(recover(), "a call of the program"), "worker 0") }()
				panic("on purpose")
			}()
			for range cap(results) {
				e := internal(t, <-results, "worker 0")
				require.Equal(t, "a call of the program", e.Op)
				require.Contains(t, e.Where, "TestAPanicWakesAllWaits")
			}
			requireEnded(t, w, "worker 0")
		})
	}
}

// Sockets, descriptors and memory files of a node that a panic has ended are closed when its Stop returns.
func TestAPanicLeavesNothingOpen(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			life := func() {
				c := start(t, van, shape{workers: 1, servers: 1, each: panicAfter("worker 0", 3, false), opts: []ps.Option{ps.ContainPanics()}})
				served := make(chan error, 1)
				go func() { served <- serve(limited(t), c.servers[0]) }()
				internal(t, work(limited(t), c.workers[0], 100_000, 100), "worker 0")
				require.Error(t, c.workers[0].Stop(limited(t)))
				require.Error(t, <-served)
				c.abort()
			}
			life() // what the process opens once
			before := descriptors(t)
			life()
			require.Equal(t, before, descriptors(t))
		})
	}
}

// descriptors counts what this process has open, by what it is, without the memory of tensors that the programs of
// these tests never free.
func descriptors(t *testing.T) map[string]int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	open := map[string]int{}
	for _, d := range all {
		to, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil || strings.Contains(to, "stepvan worker:") || strings.Contains(to, "stepvan server:") {
			continue
		}
		kind, _, _ := strings.Cut(to, ":[")
		open[kind]++
	}
	return open
}

// A joint node ends with both of its roles, and a node can be started after it.
func TestAPanicEndsAJointNode(t *testing.T) {
	for range 2 {
		c := start(t, byChoice, shape{workers: 2, servers: 2, joint: true, each: panicAfter("joint 1", 4, false), opts: []ps.Option{ps.ContainPanics()}})
		for _, n := range c.servers {
			go func() { _ = serve(limited(t), n) }()
		}
		worked := make(chan error, 2)
		for _, n := range c.workers {
			go func() { worked <- work(limited(t), n, 100, 1000) }()
		}
		var e *stepvan.InternalError
		first, second := <-worked, <-worked
		require.True(t, errors.As(first, &e) != errors.As(second, &e), "%v, and %v", first, second)
		internal(t, c.workers[1].Stop(limited(t)), e.Node)
		c.abort()
	}
}

// A callback of the program that panics, on the driver, counts as a mistake of the library.
func TestAPanicInACallback(t *testing.T) {
	c := start(t, overTCP, shape{workers: 1, servers: 1, opts: []ps.Option{ps.ContainPanics(), ps.OnDead(func(ps.Peer, error) { panic("in a callback") })}})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.scheduler.Stop(gone)
	for _, n := range []*ps.Node{c.workers[0], c.servers[0]} {
		<-n.Done()
		require.ErrorContains(t, n.Stop(limited(t)), "in a callback")
	}
}

// Without ContainPanics the panic ends the process, after a line that names what a report needs. With ContainPanics the
// process continues, unless a lock was left locked: then it ends with its last words.
func TestAPanicInAProcess(t *testing.T) {
	for _, c := range []struct {
		name            string
		contain, locked bool
		printed, words  []string
	}{
		{"goes on", false, false, nil, []string{"internal error: stepvan ", "worker 0: receive a small response (number ", "peer server 0 (", "\npanic: ", "link.(*rehearsal).countArrival"}},
		{"is contained", true, false, []string{"error: program: ", "internal error: stepvan ", "error: stop: "}, []string{"internal error: stepvan "}},
		{"leaves a lock locked", true, true, []string{"error: program: "}, []string{
			"panic: stepvan: the node cannot be closed", "internal error: stepvan ", "worker 0: receive a small response (number ", "peer server 0 (", "link.(*rehearsal).countArrival"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &page{}
			f := raise(t, overTCP, shape{workers: 1, servers: 1, each: panicAfter("worker 0", 3, c.locked),
				edit: func(s *ps.Settings) { s.LogLevel = "error" },
				fit: func(name string, cmd *exec.Cmd) {
					if name == "worker 0" {
						cmd.Stderr = log
					}
					if c.contain {
						cmd.Env = append(cmd.Env, containEnv+"=1")
					}
				}}, "serve", "work", 100)
			w := f.workers[0]
			var printed strings.Builder
			for line := range w.lines {
				printed.WriteString(line + "\n")
			}
			_ = w.cmd.Wait()
			require.NotZero(t, w.cmd.ProcessState.ExitCode())
			for _, text := range c.printed {
				require.Contains(t, printed.String(), text)
			}
			for _, text := range c.words {
				require.Contains(t, log.String(), text)
			}
			_, err := f.servers[0].expect(limited(t), "nothing")
			require.ErrorContains(t, err, "worker 0")
		})
	}
}

// The goroutine of the postoffice finds that the scheduler is silent, and panics in the callback that it tells.
func TestAPanicOfThePostoffice(t *testing.T) {
	all, _ := shape{workers: 1, servers: 1, edit: func(s *ps.Settings) {
		s.HeartbeatInterval, s.HeartbeatTimeout = 100*time.Millisecond, 400*time.Millisecond
	}}.settings(overTCP)
	scheduler := spawn(t, "scheduler", all[0], 0, nil)
	text, err := scheduler.expect(limited(t), "port")
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	for i := range all[1:] {
		all[1+i].RootPort = port
	}
	nodes, err := ps.StartAll(limited(t), all[1:], ps.ContainPanics(), ps.WithLogger(zerolog.Nop()), ps.OnDead(func(ps.Peer, error) { panic("in a callback") }))
	require.NoError(t, err)
	require.NoError(t, scheduler.cmd.Process.Signal(syscall.SIGSTOP))
	for i, name := range []string{"server 0", "worker 0"} {
		select {
		case <-nodes[i].Done():
		case <-limited(t).Done():
			t.Fatal("nobody noticed")
		}
		e := internal(t, nodes[i].Stop(limited(t)), name)
		require.Equal(t, "keep in touch with the cluster", e.Op)
		require.Contains(t, e.Where, "TestAPanicOfThePostoffice")
	}
}
