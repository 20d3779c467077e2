package bus

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// clientRole in the environment makes this test binary a client in a process of its own.
const clientRole = "BUS_TEST_CLIENT"

// loneRank is what a client in a process of its own does: it is the only rank of a side, and transfers without end.
type loneRank struct {
	Agent, Side, Partner string
	Type                 TransferType
}

// The tensor is so large that a round takes a while.
const wideRows, wideColumns = 2048, 1024

func TestMain(m *testing.M) {
	text := os.Getenv(clientRole)
	if text == "" {
		os.Exit(m.Run())
	}
	var j loneRank
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the client has ended:", err)
	os.Exit(1)
}

// run transfers round by round, and says so, until something fails. The elements are the number of the round.
func (j *loneRank) run(ctx context.Context) error {
	c, err := Dial(ctx, j.Agent, ClientOptions{})
	if err != nil {
		return err
	}
	if _, err := c.Do(ctx, &InitPair{PairName: "p", LocalName: j.Side, RemoteName: j.Partner, ExpectedWorldSize: 1}); err != nil {
		return err
	}
	x, err := c.Empty(ctx, tensor.Float32, wideRows, wideColumns)
	if err != nil {
		return err
	}
	data, err := tensor.As[float32](x)
	if err != nil {
		return err
	}
	if err := c.Register(ctx, "step", []Tensor{{"p", x.Strided()}}); err != nil {
		return err
	}
	for round := float32(1); ; round++ {
		for i := range data {
			data[i] = round
		}
		if _, err := c.Do(ctx, &Transfer{BatchID: "step", Type: j.Type}); err != nil {
			return err
		}
		fmt.Println("round", round)
	}
}

// clientProcess is a client in a process of its own.
type clientProcess struct {
	*exec.Cmd
	out *bufio.Scanner
}

func startClient(t *testing.T, j loneRank) *clientProcess {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // ends a process that a test waits for in vain
	t.Cleanup(cancel)
	c := &clientProcess{Cmd: exec.CommandContext(ctx, os.Args[0])}
	c.Env = append(os.Environ(), clientRole+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	c.out = bufio.NewScanner(out)
	t.Cleanup(c.kill)
	return c
}

func (c *clientProcess) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// rounds waits until the client has done so many rounds.
func (c *clientProcess) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		require.True(t, c.out.Scan(), "the client has ended")
	}
}

// partner is the other side of a client in a process of its own.
type partner struct {
	c    *Client
	side string
	kind TransferType
	data []float32
	view tensor.Strided
}

// begin opens the pair and registers the tensor. The client does the same meanwhile.
func (p *partner) begin(t *testing.T, of loneRank) {
	t.Helper()
	_, err := p.c.Do(within(t), &InitPair{PairName: "p", LocalName: p.side, RemoteName: of.Side, ExpectedWorldSize: 1})
	require.NoError(t, err)
	require.NoError(t, p.c.Register(within(t), "step", []Tensor{{"p", p.view}}))
}

// rounds transfers until something fails. It closes the channel after three rounds.
func (p *partner) rounds(ctx context.Context, some chan<- struct{}) error {
	for round := 1; ; round++ {
		if _, err := p.c.Do(ctx, &Transfer{BatchID: "step", Type: p.kind}); err != nil {
			return err
		}
		if p.kind == Recv {
			for _, got := range []float32{p.data[0], p.data[len(p.data)/2], p.data[len(p.data)-1]} {
				if got != float32(round) {
					return fmt.Errorf("round %d has brought %v", round, got)
				}
			}
		}
		if round == 3 {
			close(some)
		}
	}
}

// A client that is killed while it transfers ends its batch everywhere, by name and within two seconds. Its agent keeps
// nothing of it, and serves the next one.
func TestKilledClients(t *testing.T) {
	for _, kind := range []TransferType{Send, Recv} {
		t.Run(string(kind), func(t *testing.T) {
			x := newTown(t, pairtest.Shm(), 2, Options{})
			e := loneRank{x.socket(t, 0), "training", "inference", kind}
			p := &partner{c: x.client(t, 1, 0), side: e.Partner, kind: map[TransferType]TransferType{Send: Recv, Recv: Send}[kind]}
			data, held := filled(t, p.c, 0, wideRows, wideColumns)
			p.data, p.view = data, held.Strided()
			for range 2 {
				c := startClient(t, e)
				p.begin(t, e)
				some, failed := make(chan struct{}), make(chan error, 1)
				go func() { failed <- p.rounds(within(t), some) }()
				c.rounds(t, 3)
				<-some
				c.kill()
				killed := time.Now()
				err := <-failed
				require.Less(t, time.Since(killed), 2*time.Second)
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "a client of peer 0 has ended")
				_, err = p.c.Do(within(t), &CleanupBatch{BatchID: "step"})
				require.NoError(t, err)
				eventually(t, func() bool {
					x.agents[0].mu.Lock()
					defer x.agents[0].mu.Unlock()
					return len(x.agents[0].clients) == 0
				})
				x.nothingLeft(t)
			}
			require.NoError(t, p.c.Free(held))
		})
	}
}

// A client whose agent is silent gives it up, whatever it does, and says which agent. An agent that lives gives signs
// of life, also while a command waits for others.
func TestSilentAgents(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 1, Options{})
	path := x.socket(t, 0)
	const silence = 50 * time.Millisecond
	c, err := Dial(within(t), path, ClientOptions{})
	require.NoError(t, err)
	patient, err := c.Start((&job{name: "training", clients: make([]*Client, 1)}).command("p", "inference"))
	require.NoError(t, err)
	r := c.s.(*remote)
	for signs := range uint64(3) {
		r.askForLife()
		eventually(t, func() bool { return r.heard.Load() > signs })
	}
	require.False(t, patient.Done())
	require.NoError(t, c.Close(within(t)))
	_, err = Dial(within(t), path, ClientOptions{Silence: -1})
	require.ErrorIs(t, err, stepvan.ErrInvalid)

	path, stop := silentAgent(t)
	defer stop()
	for name, wait := range map[string]func(c *Client) error{
		"command": func(c *Client) error {
			_, err := c.Do(context.Background(), &Transfer{BatchID: "step", Type: Send})
			return err
		},
		"given up": func(c *Client) error {
			short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := c.Do(short, &CleanupBatch{BatchID: "step"})
			return err
		},
		"memory": func(c *Client) error {
			_, err := c.Empty(context.Background(), tensor.Float32, 8)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(within(t), path, ClientOptions{Silence: silence})
			require.NoError(t, err)
			for range 2 {
				err = wait(c)
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "agent at "+path)
				require.ErrorContains(t, err, fmt.Sprintf("silent for %v, as if it were stopped: have process %d continue", silence, unix.Getpid()))
			}
			require.NoError(t, c.Close(within(t)))
		})
	}
}

// silentAgent greets its clients, and says nothing else.
func silentAgent(t *testing.T) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(privateDir(t), "agent.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	hello := msgp.AppendUint64(msgp.AppendUint64(beginFrame(frameHello, 2), frameVersion), 10)
	binary.LittleEndian.PutUint32(hello, uint32(len(hello)-4))
	var all []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all = append(all, conn)
			_, _ = conn.Write(hello)
		}
	})
	return path, func() {
		_ = l.Close()
		accepting.Wait()
		for _, conn := range all {
			_ = conn.Close()
		}
	}
}
