package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// busOf starts a scheduler and agents, each in a process of its own. It returns the agents and their sockets.
func busOf(t *testing.T, agents int, settings ...string) (all []*exec.Cmd, sockets []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agents")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	env := append(os.Environ(), append([]string{fmt.Sprintf("STEPVAN_NUM_PEER=%d", agents), "DMLC_PS_ROOT_URI=127.0.0.1"}, settings...)...)
	begin := func(port string, args ...string) (*exec.Cmd, string) {
		p := exec.CommandContext(ctx, os.Args[0], args...)
		p.Env = append(env[:len(env):len(env)], port)
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		log := new(bytes.Buffer)
		p.Stderr = log
		require.NoError(t, p.Start())
		t.Cleanup(func() {
			_ = p.Process.Signal(unix.SIGTERM)
			_ = p.Wait()
			if t.Failed() {
				t.Logf("%v:\n%s", args, log)
			}
		})
		if len(args) > 1 {
			return p, ""
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		return p, strings.TrimSpace(line)
	}
	_, port := begin("DMLC_PS_ROOT_PORT=0", "scheduler")
	for i := range agents {
		path := filepath.Join(dir, fmt.Sprintf("%d.sock", i))
		p, _ := begin(port, "agent", "--socket", path)
		all, sockets = append(all, p), append(sockets, path)
	}
	return all, sockets
}

// busClients connects a client to each agent, and opens a pair between them: one rank on each side.
func busClients(t *testing.T, sockets []string) (all [2]*bus.Client, data [2][]float32) {
	t.Helper()
	return busClientsOf(t, sockets, "step", bus.ClientOptions{})
}

func busClientsOf(t *testing.T, sockets []string, batch string, o bus.ClientOptions) (all [2]*bus.Client, data [2][]float32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sides := [2]string{"training", "inference"}
	var g errgroup.Group
	for i := range all {
		g.Go(func() error {
			c, err := bus.Dial(ctx, sockets[i], o)
			if err != nil {
				return err
			}
			all[i] = c
			if _, err := c.Do(ctx, &bus.InitPair{
				PairName: "weights", LocalName: sides[i], ExpectedWorldSize: 1, RemoteName: sides[1-i],
				MeshShape: bus.EncodeMesh([]int{1}), Placements: bus.EncodePlacements([]layout.Placement{layout.Shard(0)}),
			}); err != nil {
				return err
			}
			x, err := c.Empty(ctx, tensor.Float32, 256, 1024)
			if err != nil {
				return err
			}
			if data[i], err = tensor.As[float32](x); err != nil {
				return err
			}
			return c.Register(ctx, batch, []bus.Tensor{{Pair: "weights", View: x.Strided()}})
		})
	}
	t.Cleanup(func() {
		for _, c := range all {
			if c != nil {
				require.NoError(t, c.Close(context.Background()))
			}
		}
	})
	require.NoError(t, g.Wait())
	return all, data
}

// Clients and agents in processes of their own move a tensor, round by round.
func TestAgents(t *testing.T) {
	for _, van := range []string{"shm", "tcp"} {
		t.Run(van, func(t *testing.T) {
			_, sockets := busOf(t, 2, "STEPVAN_VAN="+van)
			clients, data := busClients(t, sockets)
			for round := range 5 {
				for i := range data[0] {
					data[0][i] = float32(i + round)
				}
				var g errgroup.Group
				for i, kind := range []bus.TransferType{bus.Send, bus.Recv} {
					g.Go(func() error {
						_, err := clients[i].Do(t.Context(), &bus.Transfer{BatchID: "step", Type: kind})
						return err
					})
				}
				require.NoError(t, g.Wait())
				require.Equal(t, data[0], data[1])
			}
		})
	}
}

// Within two seconds of the death of an agent, its own clients and those of other agents know.
func TestDeathOfAnAgent(t *testing.T) {
	agents, sockets := busOf(t, 2)
	clients, _ := busClients(t, sockets)
	var calls []*bus.Call
	for _, c := range clients {
		call, err := c.Start(&bus.Transfer{BatchID: "step", Type: bus.Send}) // nobody receives
		require.NoError(t, err)
		calls = append(calls, call)
	}
	require.NoError(t, agents[0].Process.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := calls[0].Wait(ctx)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "agent at "+sockets[0])
	require.Eventually(t, func() bool {
		s, err := clients[1].Do(ctx, &bus.QueryStatus{BatchID: "step", StateName: bus.StateStatus})
		return err == nil && s.State == bus.Failed && s.Err != nil
	}, 2*time.Second, time.Millisecond)
}

// An agent refuses the settings of another role.
func TestAgentSettings(t *testing.T) {
	for name, value := range map[string]string{
		"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9000",
	} {
		t.Setenv(name, value)
	}
	code, _, errOut := run(t, "agent")
	require.NotZero(t, code)
	require.Contains(t, errOut, `DMLC_ROLE="worker": an agent is a peer`)
}
