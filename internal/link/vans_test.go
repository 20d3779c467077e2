package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// counted is a van that counts how often it is polled, and has events when it is told to.
type counted struct {
	van.Van
	has   int
	polls int
}

func (c *counted) Poll(events []van.Event, _ bool) int {
	c.polls++
	n := c.has
	for i := range n {
		events[i] = van.Event{Kind: van.EventCompletion, Endpoint: nobody{}}
	}
	c.has = 0
	return n
}

// nobody is an endpoint whose session is gone.
type nobody struct{ van.Endpoint }

func (nobody) User() any { return nil }

func nodeOf(caps ...van.Caps) (*Transport, []*counted) {
	n := &Transport{}
	n.vans.transport = n
	var vans []*counted
	for _, c := range caps {
		v := &counted{}
		vans = append(vans, v)
		n.vans.list = append(n.vans.list, polledVan{van: v, caps: c})
	}
	return n, vans
}

const passes = 100_000

// While traffic goes over shared memory, a look at the sockets costs nanoseconds per pass.
func TestIdleSocketsAreSparedBesideQuietTraffic(t *testing.T) {
	n, v := nodeOf(van.Caps{Quiet: true}, van.Caps{})
	shm, tcp := v[0], v[1]
	shm.has = 1
	for range passes {
		(*source)(n).Poll(false)
	}
	require.Equal(t, passes, shm.polls)
	require.Less(t, tcp.polls, passes/500)
	require.Greater(t, tcp.polls, passes/mostSkips-2, "but they are looked at")

	before := tcp.polls
	for range passes / 10 {
		shm.has = 1 // each pass takes longer, so fewer may go by
		(*source)(n).Poll(false)
	}
	require.Greater(t, tcp.polls-before, passes/10*eventPasses/mostSkips)

	before = tcp.polls
	for range 10 {
		(*source)(n).Poll(true)
	}
	require.Equal(t, before+10, tcp.polls, "who asks about all misses nothing")
}

// Nodes whose traffic goes over sockets poll them in each pass, whatever else they have.
func TestBusySocketsDoNotRest(t *testing.T) {
	n, v := nodeOf(van.Caps{Quiet: true}, van.Caps{})
	for range passes {
		(*source)(n).Poll(false)
	}
	require.Equal(t, passes, v[1].polls, "before any traffic")
	v[0].has = 1
	(*source)(n).Poll(false)
	for v[1].has = 1; v[1].has > 0; {
		(*source)(n).Poll(false)
	}
	before := v[1].polls
	for range 1000 {
		(*source)(n).Poll(false)
	}
	require.Equal(t, before+1000, v[1].polls, "since the last thing came over it")
}
