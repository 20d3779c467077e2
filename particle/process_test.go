package particle_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/ps"
)

// loopRole in the environment makes this test binary a loop in a process of its own.
const loopRole = "PARTICLE_TEST_LOOP"

func TestMain(m *testing.M) {
	if os.Getenv(loopRole) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "the loop has ended:", serve())
	os.Exit(1)
}

// serve has a loop whose second particle answers, and whose third one never does, until the process is killed.
func serve() error {
	ctx := context.Background()
	n, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	l, err := particle.Open(n.Peer(), particle.Options{Devices: 2, Memory: n.Memory()})
	if err != nil {
		return err
	}
	for len(l.Particles()) < 3 {
		time.Sleep(time.Millisecond) // another process creates them
	}
	if err := l.Handle(1, "echo", echo); err != nil {
		return err
	}
	never := func(*particle.Call, particle.Value) (particle.Value, error) { select {} }
	if err := l.Handle(2, "never", never); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// child is the process of a loop.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
}

// startPair starts a scheduler and a peer here, and another peer in a process of its own.
func startPair(t *testing.T) (*ps.Node, *child) {
	dir, err := os.MkdirTemp("", "sv")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	s := ps.DefaultSettings()
	s.NumPeer, s.RootURI, s.RootPort, s.LogLevel = 2, "127.0.0.1", 0, config.LogOff
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	c := &child{}
	var mine *ps.Node
	var mineErr, childErr error
	var group sync.WaitGroup
	scheduler, err := func() (*ps.Node, error) {
		s := s
		s.Role = ps.RoleScheduler
		return ps.Start(ctx, s, ps.OnListen(func(port int) {
			s.RootPort, s.Role = port, ps.RolePeer
			here, there := s, s
			here.NodeRank, there.NodeRank = 0, 1
			childErr = c.start(t, there)
			group.Go(func() { mine, mineErr = ps.Start(ctx, here) })
		}))
	}()
	require.NoError(t, err)
	group.Wait()
	require.NoError(t, mineErr)
	require.NoError(t, childErr)
	t.Cleanup(func() {
		_ = mine.Close()
		_ = scheduler.Close()
	})
	return mine, c
}

func (c *child) start(t *testing.T, s ps.Settings) error {
	c.Cmd = exec.Command(os.Args[0])
	c.Env = append(append(config.Clean(os.Environ()), s.Env()...), loopRole+"=1", "GORACE=atexit_sleep_ms=0")
	c.Stderr = t.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	c.out = bufio.NewScanner(out)
	return nil
}

// deathLimit is how soon a death is known: the contract.
const deathLimit = 2 * time.Second

func TestAKilledLoopIsToldToEachWaitingFuture(t *testing.T) {
	n, c := startPair(t)
	l, err := particle.Open(n.Peer(), particle.Options{Devices: 2, Memory: n.Memory()})
	require.NoError(t, err)
	var futures []*particle.Future
	for i := range 3 {
		rank := stepvan.Rank(min(i, 1))
		_, f, err := l.Create(rank, i%2)
		require.NoError(t, err)
		_, err = f.Wait(limited(t))
		require.NoError(t, err)
	}
	require.True(t, c.out.Scan(), "the other process has ended")
	asks := func(x *particle.Call, args particle.Value) (particle.Value, error) {
		f, err := x.Send(2, "never", args)
		if err == nil {
			err = x.Wait(x.Context(), f)
		}
		if err == nil {
			_, err = f.Result()
		}
		return particle.Value{}, err
	}
	require.NoError(t, l.Handle(0, "ask", asks))
	require.NoError(t, l.Handle(0, "echo", echo))
	f, err := l.Send(particle.None, 1, "echo", text("x"))
	require.NoError(t, err)
	v, err := f.Wait(limited(t))
	require.NoError(t, err)
	require.Equal(t, "x", string(v.Data))
	for range 5 {
		for to, message := range map[particle.ID]string{0: "ask", 2: "never"} {
			f, err := l.Send(particle.None, to, message, particle.Value{})
			require.NoError(t, err)
			futures = append(futures, f)
		}
	}
	require.NoError(t, c.Process.Kill())
	killed := time.Now()
	for _, f := range futures {
		_, err := f.Wait(limited(t))
		require.ErrorContains(t, err, "peer 1")
		var hook *particle.HookError
		if !errors.As(err, &hook) { // that of a hook has the same as its text
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
		}
	}
	require.Less(t, time.Since(killed), deathLimit)
	_, err = l.Send(particle.None, 1, "echo", particle.Value{})
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	f, err = l.Send(particle.None, 0, "echo", text("y"))
	require.NoError(t, err)
	v, err = f.Wait(limited(t))
	require.NoError(t, err, "what does not need the other loop continues")
	require.Equal(t, "y", string(v.Data))
	require.NoError(t, l.Close(limited(t)))
}
