package shmvan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// A peer that computes holds no view: a withdrawal does not wait for it.
func TestWithdrawNeedsNothingOfAPeerThatUsesNothing(t *testing.T) {
	a, _, x, y := pair(t, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(t, 4096), 1, van.RightRead)
	require.NoError(t, err)
	v, err := granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 4096, van.RightRead)
	require.NoError(t, err)
	v.Release()
	require.NoError(t, granter{x}.Withdraw(g.ID, 9))
	require.Equal(t, van.OpID(9), a.until(van.EventCompletion).Op)
	_, err = granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrStale)
	require.ErrorIs(t, granter{x}.Withdraw(g.ID, 10), stepvan.ErrStale)
}

// The release of the last view wakes a granter that sleeps.
func TestReleaseOfTheLastViewWakes(t *testing.T) {
	a, _, x, y := pair(t, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(t, 4096), 1, everything)
	require.NoError(t, err)
	target := van.Target{Grant: g.ID, Generation: 1}
	one, err := granter{y}.Map(target, 10, van.RightRead)
	require.NoError(t, err)
	two, err := granter{y}.Map(target, 20, van.RightWrite)
	require.NoError(t, err)
	require.NoError(t, granter{x}.Withdraw(g.ID, 9))
	a.eventually("sleep", func() bool { return a.v.Poll(make([]van.Event, 1), true) == 0 && a.v.Arm() })
	one.Release()
	require.False(t, readable(t, a.v.FD()), "woken although a view is out")
	two.Release()
	require.True(t, readable(t, a.v.FD()), "the granter was not woken, which waits for the last view")
	require.Equal(t, van.OpID(9), a.until(van.EventCompletion).Op)
}

// Slots are used again, with another id.
func TestGrantsAreLimitedAndComeAgain(t *testing.T) {
	a, _, x, y := pair(t, Options{Files: memory(), Grants: minSlots})
	mem := shared(t, 4096)
	seen := map[van.GrantID]bool{}
	for round := range 3 {
		var ids []van.GrantID
		for range minSlots {
			g, err := granter{x}.Grant(mem, 1, everything)
			require.NoError(t, err)
			require.False(t, seen[g.ID])
			seen[g.ID] = true
			ids = append(ids, g.ID)
			v, err := granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 4096, everything)
			require.NoError(t, err)
			v.Bytes[0] = byte(round)
			require.Equal(t, byte(round), mem[0])
			v.Release()
		}
		_, err := granter{x}.Grant(mem, 1, everything)
		require.ErrorIs(t, err, stepvan.ErrNotSupported)
		for _, id := range ids {
			require.NoError(t, granter{x}.Withdraw(id, 1))
			a.until(van.EventCompletion)
		}
	}
	require.NoError(t, x.Send(message(1)), "grants fill no ring")
}

func TestMapRefuses(t *testing.T) {
	_, _, x, y := pair(t, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(t, 4096), 7, van.RightRead)
	require.NoError(t, err)
	good := van.Target{Grant: g.ID, Generation: 7}
	for name, c := range map[string]struct {
		change func(*van.Target)
		n      int64
		rights van.Rights
		want   error
	}{
		"nothing":          {func(*van.Target) {}, 0, van.RightRead, stepvan.ErrInvalid},
		"too much":         {func(*van.Target) {}, 4097, van.RightRead, stepvan.ErrInvalid},
		"behind the end":   {func(t *van.Target) { t.Offset = 4096 }, 1, van.RightRead, stepvan.ErrInvalid},
		"before the start": {func(t *van.Target) { t.Offset = -1 }, 1, van.RightRead, stepvan.ErrInvalid},
		"far":              {func(t *van.Target) { t.Offset = 1<<63 - 1 }, 1<<63 - 1, van.RightRead, stepvan.ErrInvalid},
		"rights":           {func(*van.Target) {}, 1, van.RightWrite, stepvan.ErrInvalid},
		"no rights":        {func(*van.Target) {}, 1, 0, stepvan.ErrInvalid},
		"generation":       {func(t *van.Target) { t.Generation++ }, 1, van.RightRead, stepvan.ErrStale},
		"id":               {func(t *van.Target) { t.Grant += 1 << 20 }, 1, van.RightRead, stepvan.ErrStale},
		"no id":            {func(t *van.Target) { t.Grant = 0 }, 1, van.RightRead, stepvan.ErrStale},
		"slot":             {func(t *van.Target) { t.Grant |= slotMask }, 1, van.RightRead, stepvan.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			target := good
			c.change(&target)
			_, err := granter{y}.Map(target, c.n, c.rights)
			require.ErrorIs(t, err, c.want)
			require.Zero(t, y.memory.views.Load())
			require.Zero(t, y.memory.table.count(int(g.ID&slotMask)).Load())
		})
	}
}

// What a granter does to its table while views are out takes no memory away from under them.
func TestGranterChangesItsTableUnderAView(t *testing.T) {
	a, b, x, y := pair(t, Options{Files: memory()})
	mem := shared(t, 4096)
	mem[9] = 42
	g, err := granter{x}.Grant(mem, 1, everything)
	require.NoError(t, err)
	view, err := granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 4096, everything)
	require.NoError(t, err)

	slot := int(g.ID & slotMask)
	file := x.memory.table.word(slot, lineFile).Load()
	other := g.ID + 1<<20
	x.memory.table.id(slot).Store(uint64(other))
	again, err := granter{y}.Map(van.Target{Grant: other, Generation: 1}, 4096, everything)
	require.NoError(t, err)
	x.memory.table.word(slot, lineLength).Store(1 << 62)
	x.memory.table.id(slot).Store(uint64(other + 1<<20))
	_, err = granter{y}.Map(van.Target{Grant: other + 1<<20, Generation: 1}, 1, everything)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)

	x.sender.stopSharing(file) // and takes the file away
	lost := b.until(van.EventLost)
	require.ErrorAs(t, lost.Err, new(*stepvan.ProtocolError))
	require.Equal(t, byte(42), view.Bytes[9])
	require.Equal(t, byte(42), again.Bytes[9])
	require.True(t, y.conn.stillMapped())
	view.Release()
	again.Release()
	a.until(van.EventLost)
	b.until(van.EventDetached)
	require.False(t, y.conn.stillMapped())
}

// This side unmaps a file that the peer frees, also when nothing else happens on the connection.
func TestForgottenFile(t *testing.T) {
	_, b, x, y := pair(t, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(t, 4096), 1, everything)
	require.NoError(t, err)
	target := van.Target{Grant: g.ID, Generation: 1}
	view, err := granter{y}.Map(target, 1, everything)
	require.NoError(t, err)
	f := y.memory.grants[g.ID&slotMask].Load().file
	x.sender.stopSharing(f.id)
	b.eventually("the record", func() bool { b.v.Poll(make([]van.Event, 1), true); return len(y.memory.files) == 0 })
	require.Equal(t, int32(1), f.uses.Load(), "the view's")
	view.Bytes[0] = 1
	view.Release()
	require.Zero(t, f.uses.Load(), "it is mapped until the next Poll, and the poller may sleep")
}

func TestMapAllocatesNothing(t *testing.T) {
	_, _, x, y := pair(t, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(t, 4096), 1, everything)
	require.NoError(t, err)
	target, public := van.Target{Grant: g.ID, Generation: 1}, granter{y}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		v, err := public.Map(target, 100, van.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}))
}

// Counts of different slots do not meet.
func TestCountsHaveWordsOfTheirOwn(t *testing.T) {
	for _, slots := range []int{minSlots, 4096, maxSlots} {
		file := make([]byte, int(fileBytes(minRing, slots))+8)
		tab := tableOf(file[:fileBytes(minRing, slots)], minRing, slots)
		for i := range slots {
			tab.count(i).Add(1)
			tab.id(i).Add(1)
		}
		for i := range slots {
			require.Equal(t, uint64(1), tab.count(i).Load())
			require.Equal(t, uint64(1), tab.id(i).Load())
		}
	}
}

// stuff fills the socket of x until it takes nothing.
func stuff(t *testing.T, x *endpoint) {
	t.Helper()
	require.NoError(t, unix.SetsockoptInt(x.conn.sock, unix.SOL_SOCKET, unix.SO_SNDBUF, 1))
	for {
		err := unix.Sendto(x.conn.sock, wakeByte[:], unix.MSG_DONTWAIT, nil)
		if err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			return
		}
	}
}

// A file that cannot be passed on at this moment can be at the next. Until then grants wait, and payload has other
// ways.
func TestFileThatCannotBePassedOnAtThisMoment(t *testing.T) {
	a, b, x, y := pair(t, Options{Files: memory()})
	mem := shared(t, 64<<10)
	mem[7] = 42
	stuff(t, x)
	_, err := granter{x}.Grant(mem, 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.NotErrorIs(t, err, stepvan.ErrNotSupported)
	require.NoError(t, x.Send(message(1, mem)), "payload has other ways")
	b.until(van.EventMessage).Delivery.Release()
	require.Equal(t, byte(42), b.room[7])
	a.until(van.EventCompletion)
	require.Empty(t, x.sender.shared.ids)

	b.eventually("the socket to be read", func() bool { b.v.Poll(make([]van.Event, 1), true); return !readable(t, y.conn.sock) })
	g, err := granter{x}.Grant(mem, 1, van.RightRead)
	require.NoError(t, err)
	v, err := granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 64<<10, van.RightRead)
	require.NoError(t, err)
	require.Equal(t, byte(42), v.Bytes[7])
	v.Release()
	require.Len(t, x.sender.shared.ids, 1)
}

// A connection that has ended is not one that waits.
func TestFileForAPeerThatIsGone(t *testing.T) {
	_, _, x, y := pair(t, Options{Files: memory()})
	require.NoError(t, unix.Shutdown(y.conn.sock, unix.SHUT_RD))
	_, err := granter{x}.Grant(shared(t, 4096), 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
}

// Room for another file comes back when this side frees one that the peer has, so the error is one that may pass.
func TestMoreFilesThanThePeerTakes(t *testing.T) {
	_, _, x, _ := pair(t, Options{Files: memory()})
	mem := shared(t, 4096)
	x.sender.shared.ids = make([]uint64, maxFiles)
	_, err := granter{x}.Grant(mem, 1, van.RightRead)
	require.ErrorIs(t, err, errs.ErrNoGrant)
	require.ErrorContains(t, err, "files")
	x.sender.stopSharing(0)
	_, err = granter{x}.Grant(mem, 1, van.RightRead)
	require.NoError(t, err)
}
