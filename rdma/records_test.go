package rdma

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/van"
)

// A peer that sends nothing but records, and sleeps, hears that it may send more.
func TestAPeerHearsOfItsRecords(t *testing.T) {
	s := newSite(t, Options{})
	r, _ := s.attack(true)
	r.e.mu.Lock()
	for range 2 { // beside the hello
		require.True(t, r.e.rails.first().addRecord(flagCredit))
	}
	r.e.rails.first().queue.post()
	r.e.mu.Unlock()
	var events [16]van.Event
	require.Eventually(t, func() bool {
		s.v.Poll(events[:], true)
		r.van.poller.takeCompletions()
		return r.e.rails.first().credit.records.left() > 1
	}, patience, time.Millisecond)
}

// sleeper drives one side of a duo, and sleeps whenever its van lets it.
type sleeper struct {
	t      *testing.T
	v      *rdmaVan
	e      *endpoint
	memory []byte
	events [16]van.Event

	withdrawn int
	over      bool // the peer has said that it is done
}

const (
	sending     van.OpID = 1
	withdrawing van.OpID = 2
	lastRequest          = 9
)

// until drives until done says so.
func (s *sleeper) until(done func() bool) bool {
	for !done() {
		n := s.v.Poll(s.events[:], true)
		for _, ev := range s.events[:n] {
			s.take(ev)
		}
		if s.t.Failed() {
			return false
		}
		if n > 0 || !s.v.Arm() {
			continue
		}
		fds := []unix.PollFd{{Fd: int32(s.v.FD()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(patience.Milliseconds())); n == 0 && err == nil {
			s.t.Errorf("nothing wakes the driver, with %d records of credit", s.e.rails.first().credit.records.left())
		}
	}
	return true
}

func (s *sleeper) take(ev van.Event) {
	switch ev.Kind {
	case van.EventLost:
		s.t.Error(ev.Err)
	case van.EventCompletion:
		if ev.Op == withdrawing {
			s.withdrawn++
		}
	case van.EventMessage:
		s.over = s.over || ev.Delivery.Header.Request == lastRequest
		ev.Delivery.Release()
	}
}

// withdraw gives grants, tells the peer of them, and withdraws them one by one.
func (s *sleeper) withdraw(n int) bool {
	ids := make([]van.GrantID, n)
	for i := range ids {
		g, err := s.e.Grant(s.memory, 1, van.RightWrite)
		s.noError(err)
		ids[i] = g.ID
	}
	s.say(1)
	for _, id := range ids {
		s.noError(s.e.Withdraw(id, withdrawing))
	}
	want := s.withdrawn + n
	return s.until(func() bool { return s.withdrawn == want })
}

func (s *sleeper) say(request uint64) {
	s.noError(s.e.Send(&van.Message{Op: sending, Head: headOf(request, 0)}))
}

func (s *sleeper) noError(err error) {
	if err != nil {
		s.t.Error(err)
	}
}

// Two sides that withdraw their grants at the same time, and sleep, wake each other.
func TestBothSidesWithdraw(t *testing.T) {
	d := newDuo(t, Options{})
	memory := registered(t, 4096, d.vans[:]...)
	var running sync.WaitGroup
	for side := range 2 {
		s := &sleeper{t: t, v: d.vans[side], e: d.ends[side], memory: memory}
		running.Go(func() {
			for round := 0; round < 50 && s.withdraw(16); round++ {
			}
			s.say(lastRequest)
			s.until(func() bool { return s.over })
		})
	}
	running.Wait()
}
