package shmvan

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

// gather polls until a message has come, and gives it back.
func (p *party) gather(ev []van.Event) {
	for n := 0; ; n++ {
		for _, e := range ev[:p.v.Poll(ev, n&7 == 7)] {
			if e.Kind == van.EventMessage {
				e.Delivery.Release()
				return
			}
		}
	}
}

// BenchmarkOneThread is the cost of a message of 8 bytes without waiting: Send, Poll, Release.
func BenchmarkOneThread(b *testing.B) {
	_, q, x, _ := pair(b, Options{})
	m, ev := message(1, make([]byte, 8)), make([]van.Event, 16)
	b.ReportAllocs()
	for b.Loop() {
		m.Done = false
		if err := x.Send(m); err != nil {
			b.Fatal(err)
		}
		q.gather(ev)
	}
}

// BenchmarkPingPong is a round trip of 8 bytes between two threads that do not sleep.
func BenchmarkPingPong(b *testing.B) {
	p, q, x, y := pair(b, Options{})
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		m, ev := message(1, make([]byte, 8)), make([]van.Event, 16)
		for {
			q.gather(ev)
			m.Done = false
			if err := y.Send(m); err != nil || stop.Load() {
				return
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m, ev := message(1, make([]byte, 8)), make([]van.Event, 16)
	trip := func() {
		m.Done = false
		if err := x.Send(m); err != nil {
			b.Fatal(err)
		}
		p.gather(ev)
	}
	for b.Loop() {
		trip()
	}
	stop.Store(true)
	trip()
	<-done
}

// BenchmarkFlag is what two threads need at least: a word each way.
func BenchmarkFlag(b *testing.B) {
	file := make([]byte, 4*shm.LineBytes+8)
	ping, pong := shm.Word64(file, 0), shm.Word64(file, 2*shm.LineBytes)
	const over = 1<<64 - 1
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		for n := uint64(1); ; n++ {
			for ping.Load() != n {
				if ping.Load() == over {
					return
				}
			}
			pong.Store(n)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := uint64(0)
	for b.Loop() {
		n++
		ping.Store(n)
		for pong.Load() != n {
			continue
		}
	}
	ping.Store(over)
	<-done
}

// BenchmarkMap is the use of granted memory in place.
func BenchmarkMap(b *testing.B) {
	_, _, x, y := pair(b, Options{Files: memory()})
	g, err := granter{x}.Grant(shared(b, 4096), 1, everything)
	if err != nil {
		b.Fatal(err)
	}
	target, public := van.Target{Grant: g.ID, Generation: 1}, granter{y}
	b.ReportAllocs()
	for b.Loop() {
		v, err := public.Map(target, 4096, van.RightRead)
		if err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
}

// BenchmarkCopy is the rate of payload by each way that it can take.
func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10, 1 << 20, 8 << 20} {
		for name, o := range map[string]Options{
			"mapped": {Files: memory()}, "foreign": {}, "streamed": {NoForeign: true}, "written": {Files: memory()},
		} {
			b.Run(name+"/"+strconv.Itoa(size>>10)+"KiB", func(b *testing.B) { benchCopy(b, o, size, name == "written") })
		}
	}
}

func benchCopy(b *testing.B, o Options, size int, written bool) {
	p, q, x, y := pair(b, o)
	m := message(1, shared(b, size))
	if written {
		g, err := granter{y}.Grant(shared(b, size), 1, everything)
		if err != nil {
			b.Fatal(err)
		}
		m.Target = []van.Target{{Grant: g.ID, Generation: 1}}
	}
	in, out := make([]van.Event, 4), make([]van.Event, 4)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		m.Done = false
		if err := x.Send(m); err != nil {
			b.Fatal(err)
		}
		for got, complete := false, m.Done; !got || !complete; {
			for _, e := range out[:p.v.Poll(out, true)] {
				complete = complete || e.Kind == van.EventCompletion
			}
			for _, e := range in[:q.v.Poll(in, true)] {
				if e.Kind == van.EventMessage {
					e.Delivery.Release()
					got = true
				}
			}
		}
	}
}
