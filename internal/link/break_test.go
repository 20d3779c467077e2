package link_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/pairtest"
)

var errBroken = errors.New("broken")

// breakable is two nodes, of which the first breaks at its first panic. The channel at gets what the driver was doing
// then.
type breakable struct {
	*pair
	at chan string
}

func newBreakable(t *testing.T, k pairtest.Van, edit func(*link.Options)) *breakable {
	b := &breakable{at: make(chan string, 1)}
	b.pair = newPair(t, k, func(o *link.Options) {
		o.Progress.Panicked = func(any, bool) (bool, error) {
			op, peer := b.a.Position()
			select {
			case b.at <- op + ", " + peer:
				go b.a.Break(errBroken)
			default: // a further one
			}
			return true, errBroken
		}
		if edit != nil {
			edit(o)
		}
	})
	return b
}

// dead requires that waits end with the cause, that the node closes, and that its peer sees it die.
func (b *breakable) dead(t *testing.T) {
	t.Helper()
	var never progress.Event
	require.ErrorIs(t, b.a.Engine().Wait(pairtest.Context(t), &never), errBroken)
	b.hb[link.ChannelRequest].await(t, func() bool { return len(b.hb[link.ChannelRequest].lost) == 1 })
	err := b.hb[link.ChannelRequest].lost[0]
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.NotErrorIs(t, err, link.ErrLeft)
	require.NoError(t, b.a.Close())
	require.Error(t, b.sa.Send(&link.Outbound{Channel: link.ChannelRequest}))
}

func TestAPanicInAHandlerBreaksTheNode(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(t *testing.T, b *breakable)
		at     string
	}{
		{"Deliver", func(t *testing.T, b *breakable) {
			b.ha[link.ChannelRequest].use(nil, func(*link.Inbound) { panic("on purpose") })
			require.NoError(t, b.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Request: 7}))
		}, "receive a request (number 7), b ("},
		{"Place, which the van calls", func(t *testing.T, b *breakable) {
			b.ha[link.ChannelBulk].use(func(*link.Inbound, [][]byte) ([][]byte, error) { panic("on purpose") }, nil)
			require.NoError(t, b.sb.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{pattern(1<<20, 1)}}))
		}, ""},
		{"Done", func(t *testing.T, b *breakable) {
			require.NoError(t, b.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Completer: panicking{}}))
			b.hb[link.ChannelRequest].take(t).Release()
		}, "receive a message of kind"},
		{"Lost, again and again", func(t *testing.T, b *breakable) {
			b.ha[link.ChannelRequest].onLost = func(error) { panic("on purpose") }
			b.ha[link.ChannelBulk].onLost = func(error) { panic("on purpose") }
			b.b.Expel(b.sb.Peer().ID, stepvan.ErrPeerLost)
		}, "end a connection that was lost, b ("},
	} {
		t.Run(c.name, func(t *testing.T) {
			forKinds(t, func(t *testing.T, k pairtest.Van) {
				b := newBreakable(t, k, nil)
				large := &signal{node: b.a}
				b.hb[link.ChannelBulk].use(nil, func(m *link.Inbound) { m.Release() })
				require.NoError(t, b.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{pattern(8<<20, 1)}, Completer: large}))
				c.attack(t, b)
				b.dead(t)
				require.Contains(t, <-b.at, c.at)
				if c.name != "Done" { // what was acknowledged in the same breath is not told
					require.True(t, large.ev.IsSet(), "its memory is the caller's again")
				}
			})
		})
	}
}

type panicking struct{}

func (panicking) Done(*link.Outbound, error) { panic("on purpose") }

// A Close that has begun before Break returns as well. The failure of the engine does not block it.
func TestBreakWhileClosing(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		b := newBreakable(t, k, nil)
		closing := make(chan error, 1)
		go func() { closing <- b.a.Close() }()
		b.a.Break(errBroken)
		require.NoError(t, <-closing)
	})
}

// A rehearsal panics at the request that is due, and not before.
func TestRehearsal(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		b := newBreakable(t, k, func(o *link.Options) { o.Rehearsal.After = 3 })
		for i := range 2 {
			require.NoError(t, b.sb.Send(&link.Outbound{Channel: link.ChannelControl}))
			b.ha[link.ChannelControl].take(t).Release()
			require.NoError(t, b.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Request: uint64(i)}))
			b.ha[link.ChannelRequest].take(t).Release()
		}
		require.NoError(t, b.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Request: 2}))
		b.dead(t)
		require.Contains(t, <-b.at, "receive a request (number 2), b (")
	})
}
