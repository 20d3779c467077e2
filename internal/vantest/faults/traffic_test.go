package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van"
)

// TestControlsBesideTraffic has connections cut, stalled and killed while they are used from several goroutines. The
// race detector judges, and every accepted operation must complete once.
func TestControlsBesideTraffic(t *testing.T) {
	overVans(t, faults.Options{Seed: 11, LossRate: 0.001, Reorder: true}, func(t *testing.T, net *faults.Network, k kind) {
		hub := newVan(t, net, k, "hub", noWake)
		addr := listen(t, hub, k)
		var work, polls sync.WaitGroup
		stop := make(chan struct{})
		polls.Go(func() { pollUntil(hub, stop, nil) })
		const spokes = 4
		for i := range spokes {
			name := fmt.Sprint(i)
			v := newVan(t, net, k, name, noWake)
			work.Go(func() { chatter(t, net, v, name, addr) })
		}
		work.Go(func() {
			r := rand.New(rand.NewPCG(1, 1))
			for range 100 {
				name := fmt.Sprint(r.IntN(spokes))
				switch r.IntN(4) {
				case 0:
					net.Cut("hub", name)
				case 1:
					net.Corrupt(name, "hub")
				case 2:
					net.Stall(name)
				case 3:
					net.Partition(name, "hub")
					net.Heal(name, "hub")
				}
				net.Resume(name)
			}
		})
		work.Wait()
		close(stop)
		polls.Wait()
	})
}

// chatter sends over connection after connection, until 400 messages were accepted.
func chatter(t *testing.T, net *faults.Network, v van.Van, name, addr string) {
	accepted, completed, done := 0, 0, 0
	stop := make(chan struct{})
	var polls sync.WaitGroup
	polls.Go(func() { pollUntil(v, stop, &completed) })
	payload := make([]byte, 3000)
	for accepted < 400 {
		ep, err := v.Dial(context.Background(), addr)
		if err != nil {
			t.Error(err)
			break
		}
		for accepted < 400 {
			m := message(van.OpID(accepted), "meta", payload[:accepted])
			err := ep.Send(m)
			if err == nil {
				accepted++
				if m.Done {
					done++
				}
			} else if !errors.Is(err, stepvan.ErrWouldBlock) {
				break
			}
		}
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
	net.Kill(name)
	close(stop)
	polls.Wait()
	if accepted != completed+done {
		t.Errorf("%d operations accepted, %d completed", accepted, completed+done)
	}
}

// pollUntil polls v until stop is closed and nothing is left.
func pollUntil(v van.Van, stop chan struct{}, completed *int) {
	for {
		last := false
		select {
		case <-stop:
			last = true
		default:
		}
		events := poll(v)
		for _, ev := range events {
			switch ev.Kind {
			case van.EventCompletion:
				if completed != nil {
					*completed++
				}
			case van.EventMessage:
				ev.Delivery.Release()
			}
		}
		switch {
		case len(events) > 0:
		case last:
			return
		default:
			runtime.Gosched()
		}
	}
}
