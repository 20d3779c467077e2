package memvan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// TestControlsBesideTraffic has connections cut, corrupted, stalled and killed while
// they are used from several goroutines. The race detector judges, and every
// accepted operation must complete once.
func TestControlsBesideTraffic(t *testing.T) {
	net := NewNetwork(NetworkOptions{Seed: 11, LossRate: 0.001, Reorder: true})
	hub := newVan(t, net, Options{Name: "hub"})
	_, err := hub.Listen("hub")
	require.NoError(t, err)
	var work, polls sync.WaitGroup
	stop := make(chan struct{})
	polls.Go(func() { pollUntil(hub, stop, nil) })
	const spokes = 4
	for i := range spokes {
		v := newVan(t, net, Options{Name: fmt.Sprint(i)})
		work.Go(func() { chatter(t, net, v) })
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
}

// chatter sends over connection after connection, until 400 messages were accepted.
func chatter(t *testing.T, net *Network, v van.Van) {
	accepted, completed := 0, 0
	stop := make(chan struct{})
	var poll sync.WaitGroup
	poll.Go(func() { pollUntil(v, stop, &completed) })
	payload := make([]byte, 3000)
	for accepted < 400 {
		ep, err := v.Dial(context.Background(), "hub")
		if err != nil {
			t.Error(err)
			break
		}
		for accepted < 400 {
			err := ep.Send(message(van.OpID(accepted), "meta", payload[:accepted]))
			if err == nil {
				accepted++
			} else if !errors.Is(err, stepvan.ErrWouldBlock) {
				break
			}
		}
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
	net.Kill(v.(*memVan).opt.Name)
	close(stop)
	poll.Wait()
	if accepted != completed {
		t.Errorf("%d operations accepted, %d completed", accepted, completed)
	}
}

// pollUntil polls v until stop is closed and nothing is left.
func pollUntil(v van.Van, stop chan struct{}, completed *int) {
	events := make([]van.Event, 16)
	for {
		last := false
		select {
		case <-stop:
			last = true
		default:
		}
		n := v.Poll(events, true)
		for _, ev := range events[:n] {
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
		case n > 0:
		case last:
			return
		default:
			runtime.Gosched()
		}
	}
}
