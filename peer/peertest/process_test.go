package peertest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

var long = flag.Bool("long", false, "run the cases across processes over every van, and again and again")

// jobEnv holds the job of a member's process, as JSON.
const jobEnv = "PEERTEST_JOB"

func TestMain(m *testing.M) {
	text := os.Getenv(jobEnv)
	if text == "" {
		launch.Unignore()
		os.Exit(m.Run())
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", jobEnv, err)
		os.Exit(2)
	}
	x := newPipes(os.Stdin, os.Stdout)
	_ = x.out.Encode(report{Over: true, Text: j.perform(x)}) // the test may have gone
}

// perform runs the case of a job in this process, and returns what it finds.
func (j job) perform(x pipes) string {
	at := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == j.Case })
	if at < 0 {
		return fmt.Sprintf("there is no case %q", j.Case)
	}
	c := Cases()[at]
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	n, err := ps.StartFromEnv(ctx)
	if err != nil {
		return fmt.Sprintf("peer %d: start: %v", j.Rank, err)
	}
	m := newProcessMember(ctx, j, c, n, x)
	if text := perform(c, m); text != "" {
		return text
	}
	if err := n.Stop(ctx); err != nil && !errors.Is(err, stepvan.ErrClosed) {
		return fmt.Sprintf("peer %d: stop: %v", j.Rank, err)
	}
	return ""
}

// newProcessMember makes the member that this process is.
func newProcessMember(ctx context.Context, j job, c Case, n *ps.Node, x pipes) *member {
	m := &member{
		rank: j.Rank, size: c.size, peer: plainPeer{n.Peer(), n.Peer()}, memory: n.Memory(), ctx: ctx,
		rng: rand.New(rand.NewPCG(j.Seed, 2)), dead: make(chan struct{}),
	}
	m.exchange = func(mine []byte) [][]byte {
		var r reply
		if x.out.Encode(report{Value: mine}) != nil || x.in.Decode(&r) != nil {
			panic(violation("the test has gone"))
		}
		return r.Values
	}
	for _, mutant := range mutations {
		if mutant.name == j.Mutation {
			m.peer = mutant.wrap(m.peer)
			if x, ok := m.peer.(meeter); ok {
				plain := m.exchange
				m.exchange = func(mine []byte) [][]byte { defer x.meets(); return plain(mine) }
			}
		}
	}
	m.shares = j.Shares
	m.die = func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	m.quit = func() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_ = n.Stop(gone) // it says that the others have not stopped
	}
	return m
}

// slow is how long the test waits for a process beyond the limit of its case.
const slow = 10 * time.Second
