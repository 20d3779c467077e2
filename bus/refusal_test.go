package bus

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// refusing is a pair of two ranks at agent 0, and one at agent 1. The batch "step" is registered at rank 1 alone, so
// agent 0 refuses it to rank 0.
type refusing struct {
	*town
	a, b  *job
	views map[*job][]tensor.Strided
}

// newRefusing names the side of agent 1. The leader of the pair is the agent of the side whose name comes first.
func newRefusing(t testing.TB, name string) *refusing {
	t.Helper()
	rows, whole := on([]int{2}, layout.Shard(0)), on([]int{1}, layout.Replicate())
	x := &refusing{town: newTown(t, pairtest.Mem(), 2, Options{})}
	x.a, x.b = x.job(t, "training", &rows, 0, 0), x.job(t, name, &whole, 1)
	openEverywhere(t, "p", x.a, x.b)
	_, v := floats(t, 1, 4, 4)
	_, w := floats(t, 2, 4, 4)
	_, u := floats(t, 3, 8, 4)
	x.views = map[*job][]tensor.Strided{x.a: {v, w}, x.b: {u}}
	noErrors(t, registerAll(t, "step", "p", x.views))
	for _, c := range []*Client{x.a.clients[0], x.b.clients[0]} {
		_, err := c.Do(within(t), &CleanupBatch{BatchID: "step"})
		require.NoError(t, err)
	}
	return x
}

// start registers a batch at a rank, and returns its error later.
func (x *refusing) start(t testing.TB, s *job, i int, batch string) <-chan error {
	t.Helper()
	failed := make(chan error, 1)
	ctx := within(t)
	go func() { failed <- s.clients[i].Register(ctx, batch, []Tensor{{"p", x.views[s][i]}}) }()
	return failed
}

// refused has agent 0 refuse rank 0.
func (x *refusing) refused(t testing.TB) {
	t.Helper()
	require.ErrorContains(t, <-x.start(t, x.a, 0, "step"), "another client of this agent uses the batch_id")
}

func (x *refusing) checkTold(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `RegisterTensors: batch "step": pair "p": the agent of training rank 0 (peer 0) refuses to register it: `)
	require.ErrorContains(t, err, `another client of this agent uses the batch_id: clean that batch up first`)
}

// arrived waits until the leader knows the registrations of so many ranks.
func (x *town) arrived(t testing.TB, leader, count int) {
	t.Helper()
	a := x.agents[leader]
	eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, c := range a.collections {
			n += len(c.arrivals)
		}
		return n == count
	})
}

// A partner that waits for a rank learns at once that its agent has refused it, and why.
func TestPartnersOfARankThatIsRefused(t *testing.T) {
	for name, leader := range map[string]int{"inference": 1, "validation": 0} {
		t.Run(name, func(t *testing.T) {
			x := newRefusing(t, name)
			waits := x.start(t, x.b, 0, "step")
			x.arrived(t, leader, 1)
			x.refused(t)
			x.checkTold(t, <-waits)
			cleanupAll(t, "step", x.a)
			noErrors(t, registerAll(t, "step", "p", x.views))
			noErrors(t, transferAll(t, "step", x.a, x.b))
			cleanupAll(t, "step", x.a, x.b)
			x.nothingLeft(t)
		})
	}
}

// A partner that registers after the refusal waits for the rank to try again, but not for long.
func TestPartnersThatComeAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRefusing(t, "inference")
		x.refused(t)
		synctest.Wait()
		begun := time.Now()
		x.checkTold(t, <-x.start(t, x.b, 0, "step"))
		require.Equal(t, amendTime, time.Since(begun))

		waits := x.start(t, x.b, 0, "step")
		synctest.Wait()
		cleanupAll(t, "step", x.a)
		time.Sleep(amendTime - 1)
		again := x.start(t, x.a, 0, "step")
		time.Sleep(amendTime) // rank 1 has not been refused
		noErrors(t, []error{<-x.start(t, x.a, 1, "step"), <-again, <-waits})
	})
}

// A command that an agent refuses does not end the registration that the rank has made before.
func TestARefusalBesideARegistration(t *testing.T) {
	x := newRefusing(t, "inference")
	first := x.start(t, x.a, 0, "other")
	x.arrived(t, 1, 1)
	twice := []Tensor{{"p", x.views[x.a][0]}}
	require.ErrorContains(t, x.a.clients[0].As("training").Register(within(t), "other", twice), "another client of this agent uses the batch_id")
	others := []<-chan error{x.start(t, x.b, 0, "other"), x.start(t, x.a, 1, "other")}
	noErrors(t, []error{<-first, <-others[0], <-others[1]})
	require.ErrorContains(t, x.a.clients[0].Register(within(t), "other", twice), "the batch_id is in use")
	noErrors(t, transferAll(t, "other", x.a, x.b))
}

// What is wrong with one pair of a batch ends the waits of the ranks of the others.
func TestARefusalForAnotherPair(t *testing.T) {
	x := newRefusing(t, "inference")
	waits := x.start(t, x.b, 0, "other")
	x.arrived(t, 1, 1)
	v := x.views[x.a][0]
	require.Error(t, x.a.clients[0].Register(within(t), "other", []Tensor{{"p", v}, {"nobody", v}}))
	err := <-waits
	require.ErrorContains(t, err, "the agent of training rank 0 (peer 0) refuses to register it: ")
	require.ErrorContains(t, err, `pair "nobody": it is not open at this client`)
}

// An agent refuses only ranks of its own.
func TestHostileRefusals(t *testing.T) {
	x := newRefusing(t, "inference")
	x.agents[1].mu.Lock()
	var id uint64
	for id = range x.agents[1].rosters {
	}
	l := letter{kind: letterRefused, batch: "other", pair: "p", roster: id, failure: failureOf(errors.New("no"))}
	for _, member := range []int{0, 3, maxWorld} { // of agent 1, and beyond the pair
		l.member = member
		x.agents[1].lead(0, &l)
	}
	require.Empty(t, x.agents[1].refusals)
	l.roster++ // of which the leader does not know the ranks
	for range maxRefusals + 3 {
		l.member++
		x.agents[1].lead(0, &l)
	}
	require.Len(t, x.agents[1].refusals, maxRefusals)
	x.agents[1].mu.Unlock()
}
