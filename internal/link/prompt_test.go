package link_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/van"
)

// prompt is a prompt message.
func prompt(payload []byte, to van.Target, done link.Completer) *link.Outbound {
	return &link.Outbound{
		Channel: link.ChannelBulk, Payload: [][]byte{payload}, Targets: []van.Target{to}, Haste: link.Haste{Prompt: true}, Completer: done,
	}
}

// Send writes all of a prompt message, whatever its size. What must wait for credit is its header alone.
func TestPromptMessagesAreWrittenByTheirSender(t *testing.T) {
	for _, van := range []func() pairtest.Van{oneSided, pairtest.Shm} {
		for _, together := range []bool{false, true} {
			const n, count = 40_000, 4
			p := newPair(t, van(), func(o *link.Options) { o.CreditBytes, o.PieceBytes = 100_000, 1000 })
			unplaceable(t, p.hb[link.ChannelBulk])
			target, mem := sharedGrant(t, p.b, p.sb, n*count)
			var signals []*signal
			for i := range count {
				done := &signal{node: p.a}
				signals = append(signals, done)
				o := prompt(pattern(n, byte(i)), target, done)
				if together {
					require.NoError(t, p.a.SendAll([]*link.Session{p.sa, p.sa}, []*link.Outbound{o, {Channel: link.ChannelRequest}}))
				} else {
					require.NoError(t, p.sa.Send(o))
				}
				require.True(t, bytes.Equal(pattern(n, byte(i)), mem[n*i:n*(i+1)]), "written when the call returns")
				target.Offset += n
			}
			for i := range count {
				m := p.hb[link.ChannelBulk].take(t)
				require.EqualValues(t, n, m.Written, i)
				m.Release()
				require.NoError(t, signals[i].wait(t))
			}
		}
	}
}

// sharedGrant lets the peer of s reach zeroed memory that every van can share.
func sharedGrant(t testing.TB, owner *link.Transport, s *link.Session, n int) (van.Target, []byte) {
	t.Helper()
	region, err := owner.Memory().Get(n)
	require.NoError(t, err)
	t.Cleanup(func() { owner.Memory().Put(region) })
	mem := region.Bytes()[:n]
	clear(mem)
	g, err := s.Grant(mem, 1, van.RightWrite)
	require.NoError(t, err)
	return van.Target{Grant: g.ID, Generation: 1}, mem
}

// A call that is refused because a queue is full writes nothing, also for the sessions that have room.
func TestPromptMessagesToAFullQueue(t *testing.T) {
	p := newPair(t, oneSided(), func(o *link.Options) { o.CreditBytes, o.QueueMessages = 100, 2 })
	second, err := p.a.Dial(pairtest.Context(t), []string{"mem://b"})
	require.NoError(t, err)
	full, mem := grantOf(t, p.sb, 100, 1)
	roomy, untouched := grantOf(t, <-p.hb[link.ChannelRequest].opened, 100, 1)
	one := pattern(100, 1)
	accepted := 0
	for ; accepted < 100; accepted++ {
		if err = p.sa.Send(prompt(one, full, nil)); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	clear(mem)
	require.ErrorIs(t, p.sa.Send(prompt(one, full, nil)), stepvan.ErrWouldBlock)
	require.ErrorIs(t, p.a.SendAll([]*link.Session{second, p.sa}, []*link.Outbound{prompt(one, roomy, nil), prompt(one, full, nil)}), stepvan.ErrWouldBlock)
	for sessions, refused := range map[*[]*link.Session]bool{
		{p.sa}: true, {second, p.sa}: true, {second, second}: false, {second, second, second}: true,
	} {
		require.Equal(t, refused, link.CheckRoom(*sessions) != nil)
	}
	require.Equal(t, make([]byte, 100), mem)
	require.Equal(t, make([]byte, 100), untouched)
	for range accepted {
		p.hb[link.ChannelBulk].take(t).Release()
	}
}

// Prompt messages whose targets the van refuses go as others do. Without views the van writes by itself.
func TestPromptMessagesThatTheirSenderCannotWrite(t *testing.T) {
	for name, c := range map[string]struct {
		van     pairtest.Van
		change  func(*van.Target)
		written bool
	}{
		"an unknown grant":               {oneSided(), func(g *van.Target) { g.Grant++ }, false},
		"behind the end":                 {oneSided(), func(g *van.Target) { g.Offset = 51 }, false},
		"without views":                  {pairtest.NoViews(), func(*van.Target) {}, true},
		"no views, and an unknown grant": {pairtest.NoViews(), func(g *van.Target) { g.Grant++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, c.van, nil)
			target, mem := grantOf(t, p.sb, 100, 1)
			bad := target
			bad.Offset = 50
			c.change(&bad)
			done := &signal{node: p.a}
			o := prompt(pattern(50, 1), target, done)
			o.Payload, o.Targets = append(o.Payload, pattern(50, 2)), append(o.Targets, bad)
			require.NoError(t, p.sa.Send(o))
			m := p.hb[link.ChannelBulk].take(t)
			want := append(pattern(50, 1), pattern(50, 2)...)
			if c.written {
				require.EqualValues(t, 100, m.Written)
				require.Equal(t, want, mem)
			} else {
				require.Zero(t, m.Written)
				require.Equal(t, want, m.Payload)
				require.Equal(t, make([]byte, 50), mem[50:])
			}
			m.Release()
			require.NoError(t, done.wait(t))
		})
	}
}

// Several goroutines write, each to room of its own, while the driver sends what waits.
func TestPromptMessagesOfManySenders(t *testing.T) {
	for _, van := range []func() pairtest.Van{oneSided, pairtest.Shm} {
		const senders, each, n = 4, 50, 3000
		p := newPair(t, van(), func(o *link.Options) { o.CreditBytes = 3 * n })
		target, mem := sharedGrant(t, p.b, p.sb, n*senders*each)
		var sending sync.WaitGroup
		for i := range senders {
			sending.Go(func() {
				for k := range each {
					to := target
					to.Offset = int64(n * (i*each + k))
					o := prompt(pattern(n, byte(i+k)), to, nil)
					o.Request = uint64(i*each + k)
					if err := p.a.SendAll([]*link.Session{p.sa, p.sa}, []*link.Outbound{o, {Channel: link.ChannelRequest}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range senders * each {
			m := p.hb[link.ChannelBulk].take(t)
			require.EqualValues(t, n, m.Written)
			at := int(m.Header.Request)
			require.True(t, bytes.Equal(pattern(n, byte(at/each+at%each)), mem[n*at:n*(at+1)]))
			m.Release()
		}
		sending.Wait()
	}
}
