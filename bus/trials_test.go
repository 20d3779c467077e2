package bus

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
)

// trio is a pair of one rank of training, and two of inference, at agents of their own.
type trio struct {
	*town
	a, b *job
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	whole := on([]int{1}, layout.Replicate())
	rows := on([]int{2}, layout.Shard(0))
	x := &trio{town: newTown(t, pairtest.Mem(), 3, Options{})}
	x.a, x.b = x.job(t, "training", &whole, 0), x.job(t, "inference", &rows, 1, 2)
	return x
}

// wrong is a command of inference that fits no partner.
func (x *trio) wrong() *InitPair { return x.b.command("p", "validation") }

const wrongNames = "the ranks do not name each other"

// sees waits until an agent sees so many entries in a state.
func (x *town) sees(t *testing.T, agent, count int, state entryState) {
	t.Helper()
	a := x.agents[agent]
	eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, e := range a.entries {
			if e.state == state {
				n++
			}
		}
		return n == count
	})
}

// stands waits until the entry of a rank stands on the board, in a trial.
func (x *town) stands(t *testing.T, rank stepvan.Rank, trial uint64) {
	t.Helper()
	eventually(t, func() bool {
		all, _ := x.board.list(boardPrefix + "m/")
		for i := range all {
			n, err := readEntry(all[i].Owner.Rank, all[i].Key, all[i].Value)
			require.NoError(t, err)
			if n.agent == rank && n.state == entryStands && n.trial == trial {
				return true
			}
		}
		return false
	})
}

// A rank that tries again may see the board as it was before. What has failed since then does not fail it again.
func TestATrialAfterAnOldViewOfTheBoard(t *testing.T) {
	x := newTrio(t)
	first, err := x.a.clients[0].Start(x.a.command("p", "inference"))
	require.NoError(t, err)
	require.ErrorContains(t, x.b.open(t, 0, x.wrong()), wrongNames)
	_, err = first.Wait(within(t))
	require.ErrorContains(t, err, wrongNames)

	x.views[2].draw()
	late, err := x.b.clients[1].Start(x.wrong())
	require.NoError(t, err)
	x.sees(t, 0, 1, entryStands)
	x.views[0].draw()
	x.views[2].open()
	_, err = late.Wait(within(t))
	require.ErrorContains(t, err, wrongNames)

	// All have failed. Agent 0 sees the late rank stand there.
	again, err := x.a.clients[0].Start(x.a.command("p", "inference"))
	require.NoError(t, err)
	x.stands(t, 0, 1)
	x.views[0].open()
	noErrors(t, everywhere(func(s *job, i int) error { return s.open(t, i, s.command("p", "training")) }, x.b))
	_, err = again.Wait(within(t))
	require.NoError(t, err)
}

// Ranks that do not agree in their second trial fail all others of it, also one that has heard only of the first.
func TestTrialsThatFailAgain(t *testing.T) {
	x := newTrio(t)
	wrong := func(s *job, i int) error {
		if s == x.a {
			return s.open(t, i, s.command("p", "inference"))
		}
		return s.open(t, i, x.wrong())
	}
	for range 3 {
		for _, err := range everywhere(wrong, x.a, x.b) {
			require.ErrorContains(t, err, wrongNames)
		}
		late := &job{x.b.name, x.b.layout, x.b.clients[:1]}
		for _, err := range everywhere(wrong, x.a, late) {
			require.ErrorContains(t, err, wrongNames)
		}
		err := x.b.open(t, 1, x.b.command("p", "training"))
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, wrongNames)
	}
	openEverywhere(t, "p", x.a, x.b)
}

// A rank that comes when the others try again joins them, although it has not heard of that.
func TestARankJoinsALaterTrial(t *testing.T) {
	x := newTrio(t)
	x.views[2].draw()
	early := &job{x.b.name, x.b.layout, x.b.clients[:1]}
	for _, err := range everywhere(func(s *job, i int) error {
		if s == x.a {
			return s.open(t, i, s.command("p", "inference"))
		}
		return s.open(t, i, x.wrong())
	}, x.a, early) {
		require.ErrorContains(t, err, wrongNames)
	}
	var calls []*Call
	start := func(s *job, i int, remote string) {
		c, err := s.clients[i].Start(s.command("p", remote))
		require.NoError(t, err)
		calls = append(calls, c)
	}
	start(x.a, 0, "inference")
	start(x.b, 0, "training")
	x.stands(t, 0, 1)
	x.stands(t, 1, 1)
	start(x.b, 1, "training")
	x.stands(t, 2, 0)
	x.views[2].open()
	for _, c := range calls {
		_, err := c.Wait(within(t))
		require.NoError(t, err)
	}
}

// A client that takes the place of another one may fail first. The partner, which is open, then opens the pair with it.
func TestATrialWithAPartnerThatIsOpen(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 2, Options{})
	whole := on([]int{1}, layout.Replicate())
	a, b := x.job(t, "training", &whole, 0), x.job(t, "inference", &whole, 1)
	openEverywhere(t, "p", a, b)
	require.NoError(t, b.clients[0].Close(within(t)))
	b.clients[0] = x.client(t, 1, 0)
	require.ErrorContains(t, b.open(t, 0, b.command("p", "validation")), wrongNames)
	x.sees(t, 0, 1, entryFailed)
	x.views[0].draw()
	next, err := b.clients[0].Start(b.command("p", "training"))
	require.NoError(t, err)
	x.stands(t, 1, 1)
	before, _ := x.board.list(boardPrefix + "m/p/training")
	again, err := a.clients[0].Start(a.command("p", "inference"))
	require.NoError(t, err)
	eventually(t, func() bool {
		after, _ := x.board.list(boardPrefix + "m/p/training")
		return string(after[0].Value) != string(before[0].Value)
	})
	x.views[0].open()
	for _, c := range []*Call{next, again} {
		_, err := c.Wait(within(t))
		require.NoError(t, err)
	}
}

// The end of a client before an attempt does not fail it, even when the agent hears of that during the attempt.
func TestATrialAfterTheEndOfAClient(t *testing.T) {
	x := newTrio(t)
	_, err := x.b.clients[1].Start(x.b.command("p", "training"))
	require.NoError(t, err)
	x.sees(t, 0, 1, entryStands)
	x.views[0].draw()
	require.NoError(t, x.b.clients[1].Close(within(t)))
	first, err := x.a.clients[0].Start(x.a.command("p", "inference"))
	require.NoError(t, err)
	x.stands(t, 0, 0)
	x.views[0].open()
	x.b.clients[1] = x.client(t, 2, 1)
	noErrors(t, everywhere(func(s *job, i int) error { return s.open(t, i, s.command("p", "training")) }, x.b))
	_, err = first.Wait(within(t))
	require.NoError(t, err)
}

// An entry that counts beyond all bounds is refused.
func TestEntriesOfHostileTrials(t *testing.T) {
	n := rankEntry{agent: 3, client: 7, pair: "p", side: "a", remote: "b", attempt: 9, trial: maxTrial, size: 2, rank: -1}
	got, err := readEntry(3, n.key(), n.encode())
	require.NoError(t, err)
	require.Equal(t, n, got)
	n.trial++
	_, err = readEntry(3, n.key(), n.encode())
	require.ErrorContains(t, err, "entry of a rank")
}
