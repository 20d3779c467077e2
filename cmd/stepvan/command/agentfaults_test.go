package command

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bus"
)

// transfers runs rounds from client 0 to client 1 until both have failed. some is closed after three rounds.
func transfers(clients [2]*bus.Client, some chan<- struct{}) (failed [2]chan error) {
	for i, kind := range []bus.TransferType{bus.Send, bus.Recv} {
		failed[i] = make(chan error, 1)
		go func() {
			for round := 1; ; round++ {
				if _, err := clients[i].Do(context.Background(), &bus.Transfer{BatchID: "step", Type: kind}); err != nil {
					failed[i] <- err
					return
				}
				if i == 1 && round == 3 {
					close(some)
				}
			}
		}()
	}
	return failed
}

// round moves the tensor once more, and compares it.
func round(t *testing.T, batch string, clients [2]*bus.Client, data [2][]float32) {
	t.Helper()
	for i := range data[0] {
		data[0][i] = float32(3 * i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var g errgroup.Group
	for i, kind := range []bus.TransferType{bus.Send, bus.Recv} {
		g.Go(func() error {
			_, err := clients[i].Do(ctx, &bus.Transfer{BatchID: batch, Type: kind})
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, data[0], data[1])
}

// An agent that is killed while it transfers is named at both sides within two seconds. The others continue.
func TestAgentsKilledInATransfer(t *testing.T) {
	for victim, name := range []string{"sender", "receiver"} {
		t.Run(name, func(t *testing.T) {
			agents, sockets := busOf(t, 3)
			clients, _ := busClients(t, sockets[:2])
			some := make(chan struct{})
			failed := transfers(clients, some)
			<-some
			require.NoError(t, agents[victim].Process.Kill())
			killed := time.Now()
			for i := range failed {
				err := <-failed[i]
				require.Less(t, time.Since(killed), 2*time.Second)
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				if i == victim {
					require.ErrorContains(t, err, "agent at "+sockets[i]+": it has ended")
				} else {
					require.Regexp(t, `peer \d`, err.Error())
				}
			}
			require.NoError(t, clients[1-victim].Close(t.Context()))
			again, data := busClients(t, []string{sockets[1-victim], sockets[2]})
			round(t, "step", again, data)
		})
	}
}

// An agent that is stopped is named at both sides: by its own client, which it does not answer, and by the agents of
// others. When it continues, it says that it was given up, and ends.
func TestStoppedAgents(t *testing.T) {
	agents, sockets := busOf(t, 3)
	clients, _ := busClientsOf(t, sockets[:2], "step", bus.ClientOptions{Silence: time.Second})
	some := make(chan struct{})
	failed := transfers(clients, some)
	<-some
	stopped := agents[0]
	require.NoError(t, stopped.Process.Signal(unix.SIGSTOP))
	t.Cleanup(func() { _ = stopped.Process.Signal(unix.SIGCONT) })
	for i, want := range []string{"agent at " + sockets[0] + ": it has been silent for 1s, as if it were stopped: have process ", "peer "} {
		err := <-failed[i]
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
		require.ErrorContains(t, err, want)
	}
	// The stopped process still sees the memory, so the agent of the other side keeps it until then.
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := clients[1].Close(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the agent still uses its memory: close it again")
	again, data := busClientsOf(t, sockets[1:], "next", bus.ClientOptions{})
	round(t, "next", again, data)
	short, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = bus.Dial(short, sockets[0], bus.ClientOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "agent at "+sockets[0]+": it does not answer: if it was stopped, have it continue")

	require.NoError(t, stopped.Process.Signal(unix.SIGCONT))
	var exit *exec.ExitError
	require.ErrorAs(t, stopped.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Regexp(t, `refused by the scheduler \(.*\): silent for .* \(PS_HEARTBEAT_TIMEOUT\)`, stopped.Stderr.(*bytes.Buffer).String())
}
