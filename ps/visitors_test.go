package ps_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/ps"
)

// withFiles has processes whose name begins with name run with so many descriptors.
func withFiles(name string, files int) func(string, *exec.Cmd) {
	return func(n string, cmd *exec.Cmd) {
		if !strings.HasPrefix(n, name) {
			return
		}
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

// pest sends to a listener for as long as the listener takes it.
func pest(ctx context.Context, c net.Conn, kind int) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	send := func(h wire.Header, meta []byte) error {
		b := make([]byte, wire.HeaderSize)
		h.Encode(b, meta)
		_, err := c.Write(append(b, meta...))
		return err
	}
	const kinds, nameless = 8, 20 // bytes of an identity
	switch kind % kinds {
	case 0: // silent
	case 1:
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	case 2, 3, 4:
		_ = send(wire.Header{Kind: wire.KindHello}, make([]byte, nameless))
	default:
		go func() { _, _ = io.Copy(io.Discard, c) }()
		err := send(wire.Header{Kind: wire.KindHello}, make([]byte, nameless))
		const heartbeat = 8
		for seq := uint64(1); err == nil; seq++ {
			err = send(wire.Header{Kind: wire.KindData, Op: heartbeat, Sequence: seq}, nil)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
	_, _ = io.Copy(io.Discard, c)
}

// infest keeps so many pests at an address, all the time, until the test ends. It returns when as many have come.
func infest(t *testing.T, addr string, pests int) {
	ctx, cancel := context.WithCancel(limited(t))
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	came := make(chan struct{}, 2*pests)
	for i := range pests {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				select {
				case came <- struct{}{}:
				default:
				}
				pest(ctx, c, i)
			}
		})
	}
	for range pests {
		select {
		case <-came:
		case <-ctx.Done():
			t.Fatal("nobody can connect")
		}
	}
}

// A cluster whose scheduler has 256 descriptors starts and works, whatever other peers connect.
func TestStartsAmongVisitorsWithFewDescriptors(t *testing.T) {
	const files, pests = 256, 400
	all, _ := shape{workers: 2, servers: 1}.settings(overTCP)
	scheduler := spawn(t, "scheduler", all[0], 0, withFiles("scheduler", files))
	port, err := scheduler.expect(limited(t), "port")
	require.NoError(t, err)
	infest(t, net.JoinHostPort("127.0.0.1", port), pests)
	f := &family{t: t, scheduler: scheduler}
	for _, s := range all[1:] {
		_, err := fmt.Sscan(port, &s.RootPort)
		require.NoError(t, err)
		if s.Role == ps.RoleServer {
			f.servers = append(f.servers, spawn(t, "serve", s, 0, nil))
		} else {
			f.workers = append(f.workers, spawn(t, "work", s, 20, nil))
		}
	}
	f.all(limited(t), "started")
	f.all(limited(t), "done")
}

// Workers reach a server with 256 descriptors, whatever other peers connect.
func TestWorkersReachAServerAmongVisitors(t *testing.T) {
	const files, pests = 256, 400
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := free.Addr().(*net.TCPAddr)
	require.NoError(t, free.Close())
	all, _ := shape{workers: 2, servers: 1}.settings(overTCP)
	scheduler := spawn(t, "scheduler", all[0], 0, nil)
	port, err := scheduler.expect(limited(t), "port")
	require.NoError(t, err)
	f := &family{t: t, scheduler: scheduler}
	for _, s := range all[1:] {
		_, err := fmt.Sscan(port, &s.RootPort)
		require.NoError(t, err)
		if s.Role == ps.RoleServer {
			s.Port = at.Port
			f.servers = append(f.servers, spawn(t, "serve", s, 0, withFiles("serve", files)))
			infest(t, at.String(), pests)
		}
	}
	for _, s := range all[1:] {
		if s.Role == ps.RoleWorker {
			_, err := fmt.Sscan(port, &s.RootPort)
			require.NoError(t, err)
			f.workers = append(f.workers, spawn(t, "work", s, 20, nil))
		}
	}
	f.all(limited(t), "started")
	f.all(limited(t), "done")
}

// screen is where a process logs to.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	seen chan struct{} // gets something with each line
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.seen <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) count(part string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), part)
}

func (s *screen) await(t *testing.T, part string) {
	t.Helper()
	for ctx := limited(t); s.count(part) == 0; {
		select {
		case <-s.seen:
		case <-ctx.Done():
			t.Fatalf("nothing tells %q", part)
		}
	}
}

// That descriptors have run out is one line, which names the limit.
func TestRunningOutOfDescriptorsIsOneLine(t *testing.T) {
	const files, pests = 24, 60
	s := shapeOf(t, 20)
	s.LogLevel = config.LogInfo
	log := &screen{seen: make(chan struct{}, 1)}
	scheduler := spawn(t, "scheduler", s, 0, func(name string, cmd *exec.Cmd) {
		withFiles("scheduler", files)(name, cmd)
		cmd.Stderr = log
	})
	port, err := scheduler.expect(limited(t), "port")
	require.NoError(t, err)
	infest(t, net.JoinHostPort("127.0.0.1", port), pests)
	const line = "all 24 files that this process may have open are in use: raise the limit (ulimit -n)"
	log.await(t, line)
	log.await(t, "not registered yet") // by then it has found none many times
	require.Equal(t, 1, log.count(line))
}

// shapeOf are the settings of the scheduler of a cluster with so many workers.
func shapeOf(t *testing.T, workers int) ps.Settings {
	t.Helper()
	all, _ := shape{workers: workers, servers: 1}.settings(overTCP)
	return all[0]
}

// Nodes of two users meet in different directories, which is said where they wait for each other.
func TestNodesOfTwoUsersAreToldWhereTheyMeet(t *testing.T) {
	const hint = "the directory of one user: start all nodes as the same user and with the same TMPDIR, or unset DMLC_LOCAL"
	for _, role := range []ps.Role{ps.RoleWorker, ps.RoleScheduler} {
		t.Run(string(role), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			s := alone(t, role)
			s.Local, s.StartTimeout = true, 200*time.Millisecond
			_, err := ps.Start(limited(t), s)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "with DMLC_LOCAL=1 nodes meet in "+dir)
			require.ErrorContains(t, err, hint)
			s.Local = false
			_, err = ps.Start(limited(t), s)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotContains(t, err.Error(), "DMLC_LOCAL")
		})
	}
}
