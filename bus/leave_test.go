package bus

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// halves is a pair of two ranks on each side, each with an agent of its own. Rank i of one side has the elements of
// rank i of the other, so that the two halves of a round need nothing of each other.
type halves struct {
	*town
	a, b *job
	got  [2][]float32
	from [2][]float32
}

func newHalves(t *testing.T, v pairtest.Van) *halves {
	t.Helper()
	half := on([]int{2}, layout.Shard(0))
	x := &halves{town: newTown(t, v, 4, Options{})}
	x.a, x.b = x.job(t, "training", &half, 0, 1), x.job(t, "inference", &half, 2, 3)
	views := map[*job][]tensor.Strided{x.a: make([]tensor.Strided, 2), x.b: make([]tensor.Strided, 2)}
	for i := range 2 {
		x.from[i], views[x.a][i] = floats(t, float32(100*i), 4, 4)
		x.got[i], views[x.b][i] = floats(t, -1000, 4, 4)
	}
	openEverywhere(t, "p", x.a, x.b)
	noErrors(t, registerAll(t, "step", "p", views))
	return x
}

func (x *halves) start(t *testing.T, s *job, i int, kind TransferType) *Call {
	t.Helper()
	c, err := s.clients[i].Start(&Transfer{BatchID: "step", Type: kind})
	require.NoError(t, err)
	return c
}

// A rank that leaves after its last round does not fail that round at the others, whether it runs there or has not been
// asked for. All later rounds fail, and so does the batch.
func TestRanksThatLeaveEarly(t *testing.T) {
	for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided(), pairtest.TCP()} {
		for name, leave := range map[string]func(t *testing.T, x *halves){
			"client": func(t *testing.T, x *halves) { require.NoError(t, x.a.clients[0].Close(within(t))) },
			"agent":  func(t *testing.T, x *halves) { require.NoError(t, x.agents[0].Close(within(t))) },
		} {
			t.Run(van.Name+" "+name, func(t *testing.T) {
				x := newHalves(t, van)
				waits := x.start(t, x.a, 1, Send)
				for _, c := range []*Call{x.start(t, x.b, 0, Recv), x.start(t, x.a, 0, Send)} {
					_, err := c.Wait(within(t))
					require.NoError(t, err)
				}
				leave(t, x)
				again := x.start(t, x.b, 0, Recv)
				_, err := again.Wait(within(t)) // so the letter has come to the agents of the others, too
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "peer 0")
				require.False(t, waits.Done())
				late := x.start(t, x.b, 1, Recv)
				for _, c := range []*Call{late, waits} {
					_, err := c.Wait(within(t))
					require.NoError(t, err)
				}
				for i := range 2 {
					require.Equal(t, x.from[i], x.got[i])
				}
				for _, s := range []*job{x.a, x.b} {
					eventually(t, func() bool { // the letter may still be on its way
						status, err := s.clients[1].Do(within(t), &QueryStatus{BatchID: "step", StateName: StateStatus})
						return err == nil && status.State == Failed
					})
					kind := map[*job]TransferType{x.a: Send, x.b: Recv}[s]
					_, err := s.clients[1].Do(within(t), &Transfer{BatchID: "step", Type: kind})
					require.ErrorIs(t, err, stepvan.ErrPeerLost)
					require.ErrorContains(t, err, "peer 0")
				}
				cleanupAll(t, "step", &job{clients: []*Client{x.b.clients[0], x.a.clients[1], x.b.clients[1]}})
				x.nothingLeft(t)
			})
		}
	}
}

// An agent that waits in vain for those that use the memory of its clients waits again when it is closed again.
func TestAgentsAreClosedAgain(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	a := x.agents[0]
	a.mu.Lock()
	l := a.legs[legKey{"step", "p"}]
	l.rounds.Add(1) // a round that does not end
	a.mu.Unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		err := a.Close(ended)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "close it again")
	}
	l.rounds.Done()
	require.NoError(t, a.Close(within(t)))
	require.NoError(t, a.Close(within(t)))
	a.mu.Lock()
	defer a.mu.Unlock()
	require.ErrorIs(t, l.failed, stepvan.ErrPeerLost)
}
