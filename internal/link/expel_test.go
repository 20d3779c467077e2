package link_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

func TestExpelEndsTheSessionsOfOnePeer(t *testing.T) {
	p := newPair(t, pairtest.Mem(), nil)
	cause := errors.New("it is known to be dead")
	p.a.Expel(77, cause) // a stranger
	require.NoError(t, p.sa.Err())
	p.a.Expel(p.sa.Peer().ID, cause)
	h := p.ha[link.ChannelRequest]
	h.await(t, func() bool { return len(h.lost) == 1 })
	require.ErrorIs(t, h.lost[0], cause)
	h = p.hb[link.ChannelRequest] // the expelled peer sees it as a death
	h.await(t, func() bool { return len(h.lost) == 1 })
	require.ErrorIs(t, h.lost[0], stepvan.ErrPeerLost)
}

func TestGoodbyeTellsTheReason(t *testing.T) {
	p := newPair(t, pairtest.Mem(), nil)
	p.a.Goodbye("the scheduler died")
	h := p.hb[link.ChannelRequest]
	h.await(t, func() bool { return len(h.lost) == 1 })
	require.ErrorIs(t, h.lost[0], link.ErrLeft)
	require.ErrorContains(t, h.lost[0], "the scheduler died")
}
