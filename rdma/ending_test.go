package rdma

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// A driver, and Dial, may find that an endpoint lives just before another goroutine ends it.
func TestNothingIsPostedAfterTheEnd(t *testing.T) {
	d := newDuo(t, Options{})
	e := d.ends[0]
	e.mu.Lock()
	e.out.fetched.count++ // it owes the peer a record
	e.mu.Unlock()
	require.NoError(t, e.Close())
	d.vans[0].undertaker.running.Wait()
	before := e.Counters().Requests
	e.mu.Lock()
	e.out.resume()
	e.mu.Unlock()
	e.rails.first().sayHello()
	require.Equal(t, before, e.Counters().Requests)
}

// A device may shut a queue pair and say only that its requests were flushed.
func TestFlushedRequestsEndTheConnection(t *testing.T) {
	for paths := 1; paths <= 2 && (paths == 1 || !rdma(t).iWARP()); paths++ { // iWARP has one path
		t.Run(fmt.Sprintf("paths %d", paths), func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: paths, ReturnTime: never}})
			d.ready(paths)
			for _, r := range d.ends[0].rails.all() {
				require.NoError(t, r.conn.qp.Fail())
			}
			ev := d.event(0, van.EventLost)
			require.ErrorIs(t, ev.Err, stepvan.ErrPeerLost)
			if !rdma(t).iWARP() { // whose devices say that the connection is over
				require.ErrorContains(t, ev.Err, "flushed")
			}
			d.event(0, van.EventDetached)
			d.event(1, van.EventLost)
			d.event(1, van.EventDetached)
		})
	}
}

// iWARP flushes the requests before it says that the peer has closed.
func TestThePeersCloseIsTheCauseOfAFlush(t *testing.T) {
	for range 20 {
		d := newDuo(t, Options{})
		require.NoError(t, d.ends[0].Close())
		require.ErrorIs(t, d.event(1, van.EventLost).Err, parts.ErrClosedByPeer)
		d.event(1, van.EventDetached)
	}
}

// Each of two goroutines that close an endpoint may give its memory away when its Close returns.
func TestTwoClosesDuringAFetch(t *testing.T) {
	d := newDuo(t, Options{})
	e := d.ends[1]
	e.mu.Lock()
	e.in.fetch.rail = e.rails.first()
	e.in.fetch.reading, e.in.fetch.until = true, e.rails.first().queue.requests.added+1 // a read that the peer does not answer
	e.mu.Unlock()
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() {
			_ = e.Close()
			state, _, err := e.rails.first().conn.qp.Query()
			if err == nil && state != verbs.QPError && !rdma(t).iWARP() { // soft-iWARP always says state 0
				t.Errorf("Close has returned, and the queue pair still reads (state %d)", state)
			}
		})
	}
	closing.Wait()
}
