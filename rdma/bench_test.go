package rdma

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

// BenchmarkEcho measures an echo of 8 bytes between two vans. Software does the work of the devices, so its ratio to
// perftest says more than its time.
func BenchmarkEcho(b *testing.B) {
	for name, o := range map[string]Options{"send": {}, "immediate": {Immediate: true}} {
		b.Run(name+"/one goroutine", func(b *testing.B) {
			d := newDuo(b, o)
			for b.Loop() {
				for side := range 2 {
					d.echo(side)
					d.receive(1 - side)
				}
			}
		})
		b.Run(name+"/two goroutines", func(b *testing.B) {
			d := newDuo(b, o)
			defer d.answers()()
			for b.Loop() {
				d.echo(0)
				d.receive(0)
			}
		})
	}
}

// BenchmarkGrant measures how long it takes to grant memory, to tell the peer of it, and to withdraw the grant.
func BenchmarkGrant(b *testing.B) {
	for _, windows := range []bool{false, true} {
		b.Run(fmt.Sprint("windows=", windows), func(b *testing.B) {
			d := newDuo(b, Options{Windows: windows})
			memory := registered(b, 1<<20, d.vans[1])
			for b.Loop() {
				g, err := d.ends[1].Grant(memory, 1, van.RightWrite)
				require.NoError(b, err)
				d.echo(1)
				d.receive(0)
				require.NoError(b, d.ends[1].Withdraw(g.ID, 7))
				d.completed(1, 7)
			}
		})
	}
}

// BenchmarkEchoBesideRegistration measures how long echoes take while another goroutine registers a GiB and gives it up
// again, and without that.
func BenchmarkEchoBesideRegistration(b *testing.B) {
	memory, err := shm.Anonymous(1 << 30)
	require.NoError(b, err)
	defer func() { require.NoError(b, memory.Close()) }()
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprint("beside=", beside), func(b *testing.B) {
			d := newDuo(b, Options{})
			defer d.answers()()
			if beside {
				defer d.registers(memory.Bytes())()
			}
			var times []time.Duration
			for b.Loop() {
				began := time.Now()
				d.echo(0)
				d.receive(0)
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
		})
	}
}

// echo sends a message of 8 bytes.
func (d *duo) echo(side int) {
	m := van.Message{Op: 1, Head: echoHead, Payload: echoPayload}
	if err := d.ends[side].Send(&m); err != nil || !m.Done {
		d.t.Fatal(err, m.Done)
	}
}

var echoHead, echoPayload = headOf(1, 8), [][]byte{make([]byte, 8)}

// answers has a goroutine of its own echo at side 1, until stop.
func (d *duo) answers() (stop func()) {
	events := make([]van.Event, 16)
	return until(func() {
		for _, ev := range events[:d.vans[1].Poll(events, false)] {
			if ev.Kind == van.EventMessage {
				ev.Delivery.Release()
				d.echo(1)
			}
		}
	})
}

// registers has a goroutine register memory at side 0 and give it up, until stop.
func (d *duo) registers(memory []byte) (stop func()) {
	return until(func() {
		if err := errors.Join(d.vans[0].Register(memory), d.vans[0].Deregister(memory)); err != nil {
			d.t.Error(err)
		}
	})
}

// until calls f again and again, on a goroutine of its own, until stop.
func until(f func()) (stop func()) {
	var ended atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for !ended.Load() {
			f()
		}
	})
	return func() {
		ended.Store(true)
		running.Wait()
	}
}
