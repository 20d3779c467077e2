package handles

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// nothing is a source that never has anything to move.
type nothing struct{}

func (nothing) Arm() bool                  { return true }
func (nothing) Poll(bool) int              { return 0 }
func (nothing) Flush(bool)                 {}
func (nothing) FDs() []progress.Descriptor { return nil }

func newTable(t *testing.T, keep int, forget func(*Record[int], error)) *Table[int] {
	e, err := progress.NewEngine(nothing{}, progress.Options{})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return New(e, progress.Rare, keep, forget)
}

// finish is what an owner does in one operation.
func finish(t *Table[int], r *Record[int], err error) {
	t.Finish(r, err)
	t.Recycle()
}

func TestFinishedRecordsLiveForKeepLaterOnes(t *testing.T) {
	tab := newTable(t, 3, nil)
	var ids []ID
	for range 10 {
		r := tab.Open()
		ids = append(ids, r.ID())
		require.False(t, tab.Done(r.ID()))
		finish(tab, r, nil)
	}
	for i, id := range ids {
		err := tab.WaitFor(0, id)
		if i < 7 {
			require.ErrorIs(t, err, stepvan.ErrStale, i)
			require.True(t, tab.Done(id))
			require.ErrorIs(t, tab.Err(id), stepvan.ErrStale)
		} else {
			require.NoError(t, err, i)
		}
	}
	require.LessOrEqual(t, tab.Records(), 5, "three are kept, one is open, and one is about to be freed")
}

func TestUnknownIDs(t *testing.T) {
	tab := newTable(t, 3, nil)
	r := tab.Open()
	for _, id := range []ID{0, 1, 7<<32 + 5, 1<<32 + 1<<31, r.ID() + 1<<32} {
		require.ErrorIs(t, tab.WaitFor(-1, id), stepvan.ErrStale)
	}
}

func TestDroppedRecordIsStale(t *testing.T) {
	tab := newTable(t, 3, nil)
	r := tab.Open()
	id := r.ID()
	tab.Drop(r)
	require.ErrorIs(t, tab.WaitFor(0, id), stepvan.ErrStale)
	require.Same(t, r, tab.Open())
}

func TestTimeoutLeavesTheRecordWaitable(t *testing.T) {
	tab := newTable(t, 3, nil)
	r := tab.Open()
	require.ErrorIs(t, tab.WaitFor(time.Millisecond, r.ID()), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, tab.Wait(ctx, r.ID()), context.Canceled)
	boom := errors.New("boom")
	finish(tab, r, boom)
	require.ErrorIs(t, tab.WaitFor(-1, r.ID()), boom)
	require.ErrorIs(t, tab.Wait(ctx, r.ID()), boom, "a finished one returns at once")
}

func TestErrorsThatNobodySawAreCounted(t *testing.T) {
	var unseenErrors []error
	tab := newTable(t, 1, func(_ *Record[int], err error) { unseenErrors = append(unseenErrors, err) })
	seen, unseen := errors.New("seen"), errors.New("unseen")
	r := tab.Open()
	finish(tab, r, seen)
	require.ErrorIs(t, tab.Err(r.ID()), seen)
	finish(tab, tab.Open(), unseen)
	finish(tab, tab.Open(), nil)
	finish(tab, tab.Open(), nil)
	require.Equal(t, []error{unseen}, unseenErrors)
	require.EqualValues(t, 1, tab.Unseen())
}

func TestPinnedRecordIsNotRecycled(t *testing.T) {
	tab := newTable(t, 1, nil)
	r := tab.Open()
	id := r.ID()
	pinned, err := tab.Pin(id)
	require.NoError(t, err)
	finish(tab, r, nil)
	for range 10 {
		finish(tab, tab.Open(), nil)
	}
	require.Equal(t, id, pinned.ID())
	require.NoError(t, tab.WaitFor(0, id))
	tab.Unpin(id)
	for range 3 {
		finish(tab, tab.Open(), nil)
	}
	require.ErrorIs(t, tab.WaitFor(0, id), stepvan.ErrStale)
}

func TestManyWaitForOne(t *testing.T) {
	tab := newTable(t, 1, nil)
	for range 50 {
		r := tab.Open()
		id := r.ID()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := tab.WaitFor(-1, id); err != nil && !errors.Is(err, stepvan.ErrStale) {
					t.Error(err)
				}
			})
		}
		finish(tab, r, nil)
		wg.Wait()
	}
}

// Budget: 0 allocations for open, finish, wait and recycling.
func TestAllocates(t *testing.T) {
	tab := newTable(t, 16, nil)
	round := func() {
		r := tab.Open()
		id := r.ID()
		finish(tab, r, nil)
		if tab.WaitFor(time.Second, id) != nil {
			t.Fatal("not finished")
		}
	}
	for range 256 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(1000, round))
	require.LessOrEqual(t, tab.Records(), 18)
}
