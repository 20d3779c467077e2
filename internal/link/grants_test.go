package link_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// oneSided is pairtest.OneSided with a short queue.
func oneSided() pairtest.Van {
	return pairtest.MemVan("one-sided", memvan.Options{OneSided: true, Queue: 16})
}

// grantOf lets the peer of s reach fresh memory.
func grantOf(t testing.TB, s *link.Session, n int, generation uint32) (van.Target, []byte) {
	t.Helper()
	mem := make([]byte, n)
	g, err := s.Grant(mem, generation, van.RightWrite|van.RightRead)
	require.NoError(t, err)
	return van.Target{Grant: g.ID, Generation: generation}, mem
}

// unplaceable fails the test when the link asks where a payload goes.
func unplaceable(t testing.TB, h *echo) {
	h.use(func(_ *link.Inbound, dst [][]byte) ([][]byte, error) {
		t.Error("the handler was asked where a written payload goes")
		return dst, nil
	}, nil)
}

func TestWrittenPayload(t *testing.T) {
	p := newPair(t, oneSided(), func(o *link.Options) { o.PieceBytes = 4096 })
	require.True(t, p.sa.OneSided())
	one, first := grantOf(t, p.sb, 300_000, 3)
	two, second := grantOf(t, p.sb, 50_000, 4)
	two.Offset = 7
	h := p.hb[link.ChannelRequest]
	unplaceable(t, h)
	for _, sizes := range [][2]int{{10, 0}, {0, 10}, {100, 200}, {4096, 1}, {5000, 40_000}, {300_000, 49_993}} {
		clear(first)
		clear(second)
		x, y := pattern(sizes[0], 1), pattern(sizes[1], 2)
		done := &signal{node: p.a}
		require.NoError(t, p.sa.Send(&link.Outbound{
			Channel: link.ChannelRequest, Meta: []byte("m"), Payload: [][]byte{x, y}, Targets: []van.Target{one, two}, Completer: done,
		}))
		m := h.take(t)
		require.NotZero(t, m.Written)
		require.Nil(t, m.Payload)
		require.Equal(t, "m", string(m.Meta))
		require.EqualValues(t, len(x)+len(y), m.Header.Total)
		require.True(t, bytes.Equal(x, first[:len(x)]), "%v", sizes)
		require.True(t, bytes.Equal(y, second[7:7+len(y)]), "%v", sizes)
		require.Zero(t, second[6])
		m.Release()
		require.NoError(t, done.wait(t))
	}
}

// Segments without a target travel with the heads of the pieces, and the device writes the others.
func TestPayloadThatTravelsWithHeads(t *testing.T) {
	p := newPair(t, pairtest.Offload(), func(o *link.Options) { o.PieceBytes = 1024 })
	target, mem := grantOf(t, p.sb, 300_000, 3)
	h := p.hb[link.ChannelRequest]
	unplaceable(t, h)
	for _, sizes := range [][3]int{{10, 100, 0}, {0, 100, 10}, {500, 100, 524}, {1000, 100_000, 24}, {0, 300_000, 1024}, {1024, 5000, 0}, {3, 0, 4}} {
		clear(mem)
		first, middle, last := pattern(sizes[0], 1), pattern(sizes[1], 2), pattern(sizes[2], 3)
		done := &signal{node: p.a}
		require.NoError(t, p.sa.Send(&link.Outbound{
			Channel: link.ChannelRequest, Payload: [][]byte{first, middle, last}, Targets: []van.Target{{}, target, {}}, Completer: done,
		}))
		m := h.take(t)
		require.EqualValues(t, sizes[1], m.Written)
		require.Equal(t, string(first)+string(last), string(m.Payload), "%v", sizes)
		require.True(t, bytes.Equal(middle, mem[:sizes[1]]), "%v", sizes)
		m.Release()
		require.NoError(t, done.wait(t))
	}
	err := p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{make([]byte, 1025), {1}}, Targets: []van.Target{{}, target}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// A message out of memory of an accelerator is never sent without its targets. The test uses memory of the host, and
// sees the loss.
func TestDirectMessagesAreWrittenOrLost(t *testing.T) {
	p := newPair(t, pairtest.Offload(), nil)
	target, _ := grantOf(t, p.sb, 100, 3)
	err := p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{{1}}, Direct: true})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	stale := target
	stale.Generation++
	done := &signal{node: p.a}
	require.NoError(t, p.sa.Send(&link.Outbound{
		Channel: link.ChannelRequest, Payload: [][]byte{{1}}, Targets: []van.Target{stale}, Direct: true, Completer: done,
	}))
	require.ErrorIs(t, done.wait(t), stepvan.ErrStale)
	require.ErrorContains(t, p.sa.Err(), "a target was refused")
}

// A program may end the registration of such memory before the first piece has gone: the caller of Send holds it.
func TestDirectMessagesOutliveTheRegistration(t *testing.T) {
	const n = 10_000
	devices := map[string]*memvan.Device{"a": {}, "b": {}}
	p := newPair(t, pairtest.Registered(func(name string) *memvan.Device { return devices[name] }), func(o *link.Options) { o.PieceBytes = 1024 })
	from, err := tensor.FromSlice(pattern(n, 1))
	require.NoError(t, err)
	to, err := tensor.FromSlice(make([]byte, n))
	require.NoError(t, err)
	source, err := p.a.Registry.Register(from)
	require.NoError(t, err)
	_, err = p.b.Registry.Register(to)
	require.NoError(t, err)
	g, err := p.sb.Grant(to.Bytes(), 1, van.RightWrite)
	require.NoError(t, err)
	hold, ok := p.a.Registry.Hold(from.Bytes())
	require.True(t, ok)
	require.NoError(t, source.Close())
	done := &signal{node: p.a}
	require.NoError(t, p.sa.Send(&link.Outbound{
		Channel: link.ChannelRequest, Payload: [][]byte{from.Bytes()}, Targets: []van.Target{{Grant: g.ID, Generation: 1}}, Direct: true, Completer: done,
	}))
	m := p.hb[link.ChannelRequest].take(t)
	require.EqualValues(t, n, m.Written)
	require.Equal(t, from.Bytes(), to.Bytes())
	m.Release()
	require.NoError(t, done.wait(t))
	p.a.Registry.Release(hold)
	require.Eventually(t, func() bool { _, count := devices["a"].Registered(); return count == 0 }, pairtest.WaitLimit, time.Millisecond)
}

// A message of many written pieces lets the pieces of other channels pass. Messages with and without targets keep their
// order.
func TestWrittenAndPlacedMessagesTakeTurns(t *testing.T) {
	p := newPair(t, oneSided(), func(o *link.Options) { o.PieceBytes = 1024 })
	target, mem := grantOf(t, p.sb, 40_000, 1)
	h := p.hb[link.ChannelRequest]
	const rounds = 30
	for i := range rounds {
		o := &link.Outbound{Channel: link.ChannelRequest, Request: uint64(i), Payload: [][]byte{pattern(100+i*1300, byte(i))}}
		if i%3 > 0 {
			o.Targets = []van.Target{target}
		}
		require.NoError(t, p.sa.Send(o))
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{make([]byte, 5000)}}))
		if i%3 == 0 {
			continue // the next one begins before this one is looked at
		}
		for k := i - i%3; k <= i; k++ {
			if i%3 == 2 && k < i {
				continue
			}
			m := h.take(t)
			require.EqualValues(t, k, m.Header.Request)
			require.Equal(t, k%3 > 0, m.Written > 0)
			data := m.Payload
			if m.Written > 0 {
				data = mem[:m.Header.Total]
			}
			require.True(t, bytes.Equal(pattern(100+k*1300, byte(k)), data), "message %d", k)
			m.Release()
		}
	}
	for range rounds {
		p.hb[link.ChannelBulk].take(t).Release()
	}
}

func TestTargetsThatAreGoneAreNotUsed(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	target, mem := grantOf(t, p.sb, 100, 1)
	var gone sync.WaitGroup
	gone.Add(1)
	p.sb.Withdraw(target.Grant, gone.Done)
	gone.Wait()
	require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{pattern(100, 5)}, Targets: []van.Target{target}}))
	m := p.hb[link.ChannelRequest].take(t)
	require.Zero(t, m.Written)
	require.Equal(t, pattern(100, 5), m.Payload)
	require.Equal(t, make([]byte, 100), mem)
	m.Release()
}

// The peer says where a payload may go. What the van refuses, in the first piece, goes as any other message.
func TestTargetsThatTheVanRefusesAreNotUsed(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	target, mem := grantOf(t, p.sb, 100, 1)
	readOnly, err := p.sb.Grant(make([]byte, 100), 1, van.RightRead)
	require.NoError(t, err)
	for name, bad := range map[string]van.Target{
		"behind the end":     {Grant: target.Grant, Generation: 1, Offset: 51},
		"before the start":   {Grant: target.Grant, Generation: 1, Offset: -1},
		"a stale generation": {Grant: target.Grant, Generation: 2},
		"an unknown grant":   {Grant: target.Grant ^ 1<<40, Generation: 1},
		"a read-only grant":  {Grant: readOnly.ID, Generation: 1},
	} {
		for _, targets := range [][]van.Target{{bad, target}, {target, bad}} {
			require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{pattern(50, 5), pattern(50, 6)}, Targets: targets}), name)
			m := p.hb[link.ChannelRequest].take(t)
			require.Zero(t, m.Written, name)
			require.Equal(t, append(pattern(50, 5), pattern(50, 6)...), m.Payload, name)
			require.Equal(t, make([]byte, 100), mem, name)
			m.Release()
		}
	}
}

func TestTargetsAreRefusedWhereTheyMakeNoSense(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	target, _ := grantOf(t, p.sb, 100, 1)
	o := &link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{{1}}, Targets: []van.Target{target, target}}
	require.ErrorIs(t, p.sa.Send(o), stepvan.ErrInvalid)
	q := newPair(t, pairtest.Mem(), nil)
	require.False(t, q.sa.OneSided())
	o.Targets = o.Targets[:1]
	require.ErrorIs(t, q.sa.Send(o), stepvan.ErrInvalid)
	_, err := q.sa.Grant(make([]byte, 1), 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	_, err = q.sa.Map(target, 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
}

func TestWithdrawWaitsForViews(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	target, mem := grantOf(t, p.sb, 100, 1)
	v, err := p.sa.Map(target, 100, van.RightWrite)
	require.NoError(t, err)
	over := &signal{node: p.b}
	p.sb.Withdraw(target.Grant, func() { over.Done(nil, nil) })
	_, err = p.sa.Map(target, 100, van.RightWrite)
	require.ErrorIs(t, err, stepvan.ErrStale)
	require.NoError(t, p.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Completer: &signal{node: p.b}}))
	p.ha[link.ChannelRequest].take(t).Release()
	require.False(t, over.ev.IsSet(), "the peer still has a view")
	v.Bytes[99] = 9
	v.Release()
	require.NoError(t, over.wait(t))
	require.EqualValues(t, 9, mem[99])
}

// All withdrawals complete, although there are more of them than the van's queue has room for.
func TestManyWithdrawals(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	var over sync.WaitGroup
	for i := range 100 {
		target, _ := grantOf(t, p.sb, 10, uint32(i))
		over.Add(1)
		p.sb.Withdraw(target.Grant, over.Done)
	}
	over.Wait()
}

// detachWatcher is an echo that learns which sessions detach.
type detachWatcher struct {
	*echo
	detached chan *link.Session
}

func (h detachWatcher) Detached(s *link.Session) { h.detached <- s }

func withDetachWatcher(n *link.Transport) detachWatcher {
	h := detachWatcher{newEcho(n), make(chan *link.Session, 8)}
	n.Handle(link.ChannelResponse, h)
	return h
}

// inherit makes a pair whose second node learns which sessions detach.
func inherit(t *testing.T, k pairtest.Van) (*link.Transport, *link.Session, *link.Session, detachWatcher) {
	a, b := newNode(t, k, "a", nil), newNode(t, k, "b", nil)
	h := withDetachWatcher(b)
	withDetachWatcher(a)
	addr, err := b.Listen(k.Addr("b"))
	require.NoError(t, err)
	sa, err := a.Dial(pairtest.Context(t), addr)
	require.NoError(t, err)
	return a, sa, <-h.opened, h
}

func TestDetachedFollowsTheLoss(t *testing.T) {
	for _, k := range append(kinds(t), oneSided()) {
		t.Run(k.Name, func(t *testing.T) {
			_, sa, sb, h := inherit(t, k)
			require.NoError(t, sa.Close(""))
			h.await(t, func() bool { return len(h.lost) == 1 })
			require.Same(t, sb, <-h.detached)
		})
	}
}

func TestDetachedWaitsForViews(t *testing.T) {
	for _, how := range []string{"closed by the viewer", "closed by the owner"} {
		t.Run(how, func(t *testing.T) {
			_, sa, sb, h := inherit(t, oneSided())
			target, mem := grantOf(t, sb, 100, 1)
			v, err := sa.Map(target, 100, van.RightWrite)
			require.NoError(t, err)
			over := &signal{node: h.node}
			sb.Withdraw(target.Grant, func() { over.Done(nil, nil) })
			if how == "closed by the viewer" {
				require.NoError(t, sa.Close(""))
			} else {
				require.NoError(t, sb.Close(""))
			}
			h.await(t, func() bool { return len(h.lost) == 1 })
			require.Empty(t, h.detached)
			require.False(t, over.ev.IsSet())
			v.Bytes[0] = 1
			v.Release()
			require.NoError(t, over.wait(t))
			require.Same(t, sb, <-h.detached)
			require.EqualValues(t, 1, mem[0])
			late := false
			sb.Withdraw(target.Grant, func() { late = true })
			require.True(t, late, "nobody reaches the memory of a session that is detached")
		})
	}
}

// A node that closes does not wait for ever for a peer that keeps what it views.
func TestCloseWithViewsOut(t *testing.T) {
	k := oneSided()
	_, sa, sb, h := inherit(t, k)
	target, _ := grantOf(t, sb, 100, 1)
	v, err := sa.Map(target, 100, van.RightRead)
	require.NoError(t, err)
	require.NoError(t, h.node.Close())
	require.Len(t, h.lost, 1)
	require.Empty(t, h.detached)
	v.Release()
}

func TestKillDetaches(t *testing.T) {
	k := pairtest.WithFaults(oneSided())
	_, sa, sb, h := inherit(t, k)
	target, _ := grantOf(t, sb, 100, 1)
	_, err := sa.Map(target, 100, van.RightRead)
	require.NoError(t, err)
	require.True(t, k.Net.Kill("a"))
	require.Same(t, sb, <-h.detached)
}

func TestWrittenSteadyStateDoesNotAllocate(t *testing.T) {
	p := newPair(t, oneSided(), nil)
	pp := newPingPong(t, p, 8)
	target, _ := grantOf(t, p.sb, 8, 1)
	pp.out.Targets = []van.Target{target}
	for range 500 {
		pp.once(t)
	}
	require.Zero(t, testing.AllocsPerRun(500, func() { pp.once(t) }))
}

func TestLostWhileWriting(t *testing.T) {
	k := pairtest.WithFaults(oneSided())
	p := newPair(t, k, func(o *link.Options) { o.PieceBytes = 1024 })
	target, _ := grantOf(t, p.sb, 1<<20, 1)
	done := &signal{node: p.a}
	k.Net.Stall("b")
	require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{make([]byte, 1<<20)}, Targets: []van.Target{target}, Completer: done}))
	k.Net.Cut("a", "b")
	require.Error(t, done.wait(t))
	k.Net.Resume("b")
	h := p.hb[link.ChannelRequest]
	h.await(t, func() bool { return len(h.lost) == 1 })
	require.Zero(t, h.aborted, "nothing was placed")
	require.False(t, slices.Contains(p.b.Sessions(), p.sb))
}

// Written pieces come while the receiver sleeps, until the last ones wake it.
func TestWrittenPiecesToASleeper(t *testing.T) {
	const n = 300_000
	p := newPair(t, pairtest.Shm(), func(o *link.Options) { o.PieceBytes, o.CreditBytes = 4096, 400_000 })
	unplaceable(t, p.hb[link.ChannelBulk])
	target, mem := sharedGrant(t, p.b, p.sb, n)
	for i := range 50 {
		payload := pattern(n, byte(i))
		done := &signal{node: p.a}
		o := &link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{payload}, Targets: []van.Target{target}, Completer: done}
		require.NoError(t, p.sa.Send(o))
		m := p.hb[link.ChannelBulk].take(t)
		require.EqualValues(t, n, m.Written)
		require.True(t, bytes.Equal(payload, mem))
		m.Release()
		require.NoError(t, done.wait(t))
	}
}
