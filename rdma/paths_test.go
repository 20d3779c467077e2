package rdma

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// never is later than any test ends.
const never = time.Hour

// stream sends numbered messages from one side and has the other check their order. Between two of them it calls do.
func (d *duo) stream(side, n int, do func(sent int)) {
	d.t.Helper()
	got := 0
	poll := func() {
		for at, v := range d.vans {
			for _, ev := range d.events[:v.Poll(d.events[:], false)] {
				switch ev.Kind {
				case van.EventMessage:
					require.EqualValues(d.t, got+1, ev.Delivery.Header.Request)
					require.Equal(d.t, byte(got), ev.Delivery.Payload[0])
					got++
					ev.Delivery.Release()
				case van.EventLost:
					d.t.Fatal(at, ev.Err)
				}
			}
		}
	}
	deadline := time.Now().Add(patience)
	for sent := 0; sent < n; {
		err := d.ends[side].Send(&van.Message{Op: 1, Head: headOf(uint64(sent+1), 1), Payload: [][]byte{{byte(sent)}}})
		if err == nil {
			sent++
			do(sent)
			continue
		}
		require.ErrorIs(d.t, err, stepvan.ErrWouldBlock)
		poll()
		require.True(d.t, time.Now().Before(deadline), "%d of %d messages have come", got, n)
	}
	for got < n && time.Now().Before(deadline) {
		poll()
	}
	require.Equal(d.t, n, got)
}

// ready polls until both sides may send over n rails.
func (d *duo) ready(n int) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		d.poll()
		return d.ends[0].rails.count((*rail).usable) == n && d.ends[1].rails.count((*rail).usable) == n
	}, patience, time.Millisecond)
}

func TestMessagesOverSeveralPathsStayInOrder(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	for _, paths := range []int{2, 3} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: paths, ReturnTime: never}})
			d.ready(paths)
			for side := range 2 {
				d.stream(side, 2000, func(int) {})
				require.Equal(t, paths, len(d.ends[side].rails.all()))
				for _, r := range d.ends[side].rails.all() {
					require.Greater(t, r.conn.qp.Counters().Requests, uint64(2000/paths/2))
				}
			}
		})
	}
}

// target grants memory of one side to the other, which hears of it.
func (d *duo) target(side int, mem []byte) (van.Grant, van.Target) {
	d.t.Helper()
	g, err := d.ends[side].Grant(mem, 1, van.RightWrite)
	require.NoError(d.t, err)
	require.NoError(d.t, d.ends[side].Send(&van.Message{Op: 1, Head: headOf(1, 0)}))
	d.delivered(1 - side).Release()
	return g, van.Target{Grant: g.ID, Generation: 1}
}

// A payload with targets is cut over the rails from a threshold on, and is whole when its message comes.
func TestLargePayloadIsCutOverTheRails(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Paths: PathOptions{Count: 2, StripeBytes: 100_000, ReturnTime: never}})
	d.ready(2)
	const size = 1<<20 + 12345
	source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
	_, _ = rand.NewChaCha8([32]byte{}).Read(source)
	_, to := d.target(1, inbox)
	segments := func(n int) (payload [][]byte, targets []van.Target) {
		for _, cut := range [][2]int{{0, min(n, 70_001)}, {min(n, 70_001), n}} {
			payload = append(payload, source[cut[0]:cut[1]])
			targets = append(targets, van.Target{Grant: to.Grant, Generation: 1, Offset: int64(cut[0])})
		}
		return payload, targets
	}
	for _, n := range []int{99_999, 100_000, size} {
		clear(inbox)
		var before [2]uint64
		for i, r := range d.ends[0].rails.all() {
			before[i] = r.conn.qp.Counters().Bytes
		}
		payload, targets := segments(n)
		m := van.Message{Op: 7, Head: headOf(1, n), Payload: payload, Target: targets}
		require.NoError(t, d.ends[0].Send(&m))
		require.False(t, m.Done)
		got := d.delivered(1)
		require.True(t, got.Written)
		require.True(t, bytes.Equal(source[:n], inbox[:n]))
		got.Release()
		d.completed(0, 7)
		least := uint64(n)
		for i, r := range d.ends[0].rails.all() {
			least = min(least, r.conn.qp.Counters().Bytes-before[i])
		}
		require.Equal(t, n >= 100_000, least > uint64(n/2-8192), "%d bytes went over one rail", least)
	}
}

// A queue pair that fails, at either side, costs no message, and none comes twice.
func TestALostRailCostsNoMessage(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	for _, at := range []int{0, 1} {
		t.Run(fmt.Sprintf("at side %d", at), func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: never}})
			d.ready(2)
			d.stream(0, 500, func(sent int) {
				if sent == 200 {
					require.NoError(t, d.ends[at].rails.all()[0].conn.qp.Fail())
				}
			})
			d.stream(1, 100, func(int) {})
			d.ready(1)
			d.gone(1)
		})
	}
}

// A rail that was lost comes back, at whatever side it was, and carries messages.
func TestALostRailComesBack(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: 20 * time.Millisecond}})
	d.ready(2)
	for i := range 6 {
		lost := d.ends[i%2].rails.all()[i/2%2]
		d.stream(0, 100, func(sent int) {
			if sent == 50 {
				require.NoError(t, lost.conn.qp.Fail())
			}
		})
		require.Eventually(t, func() bool {
			d.poll()
			return !slices.Contains(d.ends[i%2].rails.all(), lost)
		}, patience, time.Millisecond)
		d.ready(2)
		before := d.ends[1].rails.at(lost.index).conn.qp.Counters().Requests
		d.stream(1, 100, func(int) {})
		require.Greater(t, d.ends[1].rails.at(lost.index).conn.qp.Counters().Requests, before)
	}
}

// poll polls both sides, and keeps the events.
func (d *duo) poll() {
	for at, v := range d.vans {
		d.waiting[at] = append(d.waiting[at], d.events[:v.Poll(d.events[:], false)]...)
	}
}

// gone waits until both sides have n rails, and have given the memory of others back.
func (d *duo) gone(n int) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		d.poll()
		return len(d.ends[0].rails.all()) == n && len(d.ends[1].rails.all()) == n
	}, patience, time.Millisecond)
}

// connectPath has side 0 connect the other one of two paths again.
func (d *duo) connectPath() {
	c := &connecting{e: d.ends[0], path: 1, again: true}
	c.try()
}

// withOneRail connects two paths, and loses the second.
func withOneRail(t *testing.T, o Options) *duo {
	t.Helper()
	o.Paths = PathOptions{Count: 2, ReturnTime: never, Changed: o.Paths.Changed}
	d := newDuo(t, o)
	d.ready(2)
	require.NoError(t, d.ends[0].rails.at(1).conn.qp.Fail())
	d.gone(1)
	return d
}

// The peer may shut a rail before this side has listed it, and say so over another one.
func TestARailThatThePeerHasShutMeanwhile(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := withOneRail(t, Options{PendingTime: 2 * time.Second})
	for range 5 {
		d.ends[0].mu.Lock() // so it does not list the rail
		connected := make(chan struct{})
		go func() {
			d.connectPath()
			close(connected)
		}()
		polled := func(done func() bool) {
			require.Eventually(t, func() bool {
				d.waiting[1] = append(d.waiting[1], d.events[:d.vans[1].Poll(d.events[:], false)]...)
				return done()
			}, patience, time.Millisecond)
		}
		var r *rail
		polled(func() bool { r = d.ends[1].rails.at(1); return r != nil })
		require.NoError(t, r.conn.qp.Fail())
		polled(func() bool { return d.ends[1].rails.at(1) == nil })
		d.ends[0].mu.Unlock()
		require.Eventually(t, func() bool {
			d.poll()
			select {
			case <-connected:
				return true
			default:
				return false
			}
		}, patience, time.Millisecond)
		d.gone(1)
		d.stream(0, 50, func(int) {})
		d.stream(1, 50, func(int) {})
	}
	d.connectPath()
	d.ready(2)
}

// A rail over which the peer never says hello does not stay. The connection does.
func TestARailWithoutAHello(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	tell, heard := changes()
	d := withOneRail(t, Options{PendingTime: 300 * time.Millisecond, Paths: PathOptions{Changed: tell}})
	for range 2 { // both sides
		require.ErrorIs(t, (<-heard).Err, stepvan.ErrPeerLost)
	}
	silent, err := d.vans[0].newDialing(greeting{path: 1, paths: 2, token: d.ends[0].token + 9}, nil)
	require.NoError(t, err)
	defer silent.close()
	require.NoError(t, silent.connect(d.ends[0].routes[1], "silent"))
	require.Len(t, d.ends[1].rails.all(), 2)
	d.gone(1)
	require.Empty(t, heard, "the path has not stood again")
	require.NoError(t, silent.rail.e.Close())
	d.stream(0, 50, func(int) {})
	d.stream(1, 50, func(int) {})
}

// What a lost rail was to tell of another loss is told again at once, and may come twice.
func TestALossIsToldAgain(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Paths: PathOptions{Count: 3, ReturnTime: never}})
	d.ready(3)
	first, second := d.ends[0].rails.at(0), d.ends[0].rails.at(1)
	require.NoError(t, first.conn.qp.Fail())
	d.gone(2)
	d.ends[0].mu.Lock()
	second.flight.records = append(second.flight.records, carriedRecord{number: 1 << 20, flag: flagLoss, loss: first})
	d.ends[0].mu.Unlock()
	require.NoError(t, second.conn.qp.Fail())
	d.gone(1)
	d.stream(0, 50, func(int) {})
	d.stream(1, 50, func(int) {})
	d.ends[1].mu.Lock()
	defer d.ends[1].mu.Unlock()
	require.True(t, d.ends[1].out.order.early[0].is, "it came again, of a rail that has gone")
}

// A peer with many more slots than this side has buffers tells of them late. This side asks.
func TestMoreSlotsThanBuffers(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Slots: 300, Paths: PathOptions{Count: 2, ReturnTime: never}})
	d.ready(2)
	d.stream(0, 2000, func(int) {})
}

// What has come behind a gap is not looked at any more when the connection has ended, and its memory has gone.
func TestAGapAtTheEnd(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: never}})
	d.ready(2)
	from, to := d.ends[0].rails.at(0), d.ends[1].rails.at(0)
	for n := range uint32(12) {
		from.lie(prefix{kind: kindMessage, number: n + 2, head: wire.HeaderSize}, headOf(9, 0))
	}
	require.Eventually(t, func() bool {
		d.vans[1].poller.takeCompletions() // which hands nothing out
		return to.held == 12
	}, patience, time.Millisecond)
	require.NoError(t, d.ends[1].Close())
	require.Eventually(t, func() bool {
		return len(d.vans[1].members.all(func(*rail) bool { return true })) == 0
	}, patience, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // the memory goes a moment later
	for range 10 {
		d.vans[1].Poll(d.events[:], false)
	}
}

// The last rail is the connection.
func TestTheLastRail(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: never}})
	d.ready(2)
	require.NoError(t, d.ends[1].rails.all()[1].conn.qp.Fail())
	d.gone(1)
	require.NoError(t, d.ends[0].rails.first().conn.qp.Fail())
	for side := range 2 {
		require.ErrorIs(t, d.event(side, van.EventLost).Err, stepvan.ErrPeerLost)
		d.event(side, van.EventDetached)
	}
}

// Writes, grants and withdrawals still work over the rails that are left.
func TestGrantsSurviveALostRail(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	for at := range 4 {
		t.Run(fmt.Sprintf("rail %d of side %d", at%2, at/2), func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: 2, StripeBytes: 64 << 10, ReturnTime: never}})
			d.ready(2)
			const size = 1 << 20
			source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
			g, to := d.target(1, inbox)
			for round := range 20 {
				_, _ = rand.NewChaCha8([32]byte{byte(round)}).Read(source)
				m := van.Message{Op: van.OpID(round), Head: headOf(1, size), Payload: [][]byte{source}, Target: []van.Target{to}}
				require.NoError(t, d.ends[0].Send(&m))
				if round == 7 {
					require.NoError(t, d.ends[at/2].rails.all()[at%2].conn.qp.Fail())
				}
				d.delivered(1).Release()
				require.True(t, bytes.Equal(source, inbox), "round %d", round)
				d.completed(0, van.OpID(round))
			}
			require.NoError(t, d.ends[1].Withdraw(g.ID, 99))
			d.completed(1, 99)
			second, to := d.target(1, inbox[:100])
			m := van.Message{Op: 50, Head: headOf(1, 100), Payload: [][]byte{source[:100]}, Target: []van.Target{to}}
			require.NoError(t, d.ends[0].Send(&m))
			d.delivered(1).Release()
			require.NoError(t, d.ends[1].Withdraw(second.ID, 100))
			d.completed(1, 100)
			d.gone(1)
		})
	}
}

// A payload that is read begins again over another rail.
func TestAFetchSurvivesALostRail(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	for at := range 4 {
		t.Run(fmt.Sprintf("rail %d of side %d", at%2, at/2), func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: never}})
			d.ready(2)
			const size = 8 << 20
			source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
			_, _ = rand.NewChaCha8([32]byte{}).Read(source)
			d.vans[1].opt.Placer = &places{segments: [][]byte{inbox}}
			for op := range 3 {
				clear(inbox)
				m := van.Message{Op: van.OpID(op), Head: headOf(1, size), Payload: [][]byte{source}}
				require.NoError(t, d.ends[0].Send(&m))
				for deadline := time.Now().Add(patience); d.ends[1].reads() == 0 && time.Now().Before(deadline); {
					d.vans[1].Poll(d.events[:], false)
				}
				if op == 0 {
					require.NoError(t, d.ends[at/2].rails.all()[at%2].conn.qp.Fail())
				}
				d.delivered(1).Release()
				require.True(t, bytes.Equal(source, inbox))
				d.completed(0, van.OpID(op))
			}
			d.gone(1)
		})
	}
}

func (e *endpoint) reads() (n uint64) {
	for _, r := range e.rails.all() {
		n += r.conn.qp.Counters().Reads
	}
	return n
}

// Rails fail one after another at both sides, while messages of all kinds are under way both ways.
func TestRailsFailUnderFire(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	const messages, size = 400, 200_000
	d := newDuo(t, Options{Paths: PathOptions{Count: 4, StripeBytes: 32 << 10, ReturnTime: never}})
	d.ready(4)
	var sides [2]*firing
	for side := range 2 {
		sides[side] = &firing{d: d, side: side, random: rand.New(rand.NewPCG(uint64(side), 7))}
		sides[side].source, sides[side].inbox = registered(t, size, d.vans[side]), registered(t, size, d.vans[1-side])
		_, _ = rand.NewChaCha8([32]byte{byte(side)}).Read(sides[side].source)
		_, sides[side].to = d.target(1-side, sides[side].inbox)
		d.vans[1-side].opt.Placer = &places{segments: [][]byte{make([]byte, size)}}
	}
	fails := map[int][2]int{60: {0, 3}, 150: {1, 0}, 260: {0, 1}} // after so many messages: at which side, which rail
	deadline := time.Now().Add(2 * patience)
	for sides[0].got < messages || sides[1].got < messages {
		require.True(t, time.Now().Before(deadline), "%d and %d messages have come", sides[0].got, sides[1].got)
		for _, f := range sides {
			if f.sent < messages && f.fire() && f.side == 0 {
				if at, ok := fails[f.sent]; ok {
					if r := d.ends[at[0]].rails.at(at[1]); r != nil {
						require.NoError(t, r.conn.qp.Fail())
					}
				}
			}
		}
		for at, v := range d.vans {
			for _, ev := range d.events[:v.Poll(d.events[:], false)] {
				sides[1-at].take(ev)
			}
		}
	}
	d.gone(1)
}

// firing is one direction of TestRailsFailUnderFire.
type firing struct {
	d             *duo
	side          int
	random        *rand.Rand
	source, inbox []byte
	to            van.Target
	sent, got     int
}

// fire sends the next message: without payload, small, through slots, with targets, large with targets.
func (f *firing) fire() bool {
	m := van.Message{Op: van.OpID(f.sent)}
	n := 0
	switch f.random.IntN(5) {
	case 1:
		n = 1 + f.random.IntN(500)
	case 2:
		n = 2000 + f.random.IntN(30_000)
		m.Payload = [][]byte{make([]byte, n)} // not registered
	case 3:
		n = 1 + f.random.IntN(8000)
		m.Target = []van.Target{f.to}
	case 4:
		n = 100_000 + f.random.IntN(100_000)
		m.Target = []van.Target{f.to}
	}
	if n > 0 && m.Payload == nil {
		m.Payload = [][]byte{f.source[:n]}
	}
	m.Head = headOf(uint64(f.sent+1), n)
	err := f.d.ends[f.side].Send(&m)
	if err == nil {
		f.sent++
		return true
	}
	require.ErrorIs(f.d.t, err, stepvan.ErrWouldBlock)
	return false
}

// take looks at an event of the receiving side.
func (f *firing) take(ev van.Event) {
	switch ev.Kind {
	case van.EventLost:
		f.d.t.Fatal(ev.Err)
	case van.EventCompletion:
		require.NoError(f.d.t, ev.Err)
	case van.EventMessage:
		f.got++
		h := &ev.Delivery.Header
		require.EqualValues(f.d.t, f.got, h.Request)
		if ev.Delivery.Written {
			require.True(f.d.t, bytes.Equal(f.source[:h.Payload], f.inbox[:h.Payload]))
		}
		ev.Delivery.Release()
	}
}
