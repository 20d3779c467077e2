package tcpvan

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// BenchmarkExchange measures round trips between two spinning threads. Bare
// non-blocking sockets and the van carry the same payload in turns, so that
// both see the same machine. The ratio of the tenth percentiles says most where other work disturbs.
func BenchmarkExchange(b *testing.B) {
	for _, size := range []struct {
		name      string
		out, back int
	}{
		{"8B", 8, 8},
		{"4KiB", 4 << 10, 4 << 10},
		{"16KiB", 16 << 10, 16 << 10},
		{"64KiB", 64 << 10, 64 << 10},
		{"AFD", 896 << 10, 1792 << 10},
		{"16MiB", 16 << 20, 16 << 20},
	} {
		for _, k := range []struct {
			name, addr string
			o          Options
		}{
			{"tcp", "127.0.0.1:0", Options{}},
			{"tcp-3rails", "127.0.0.1:0", Options{Rails: 3}},
			{"unix", "unix:@stepvan-bench", Options{}},
		} {
			b.Run(size.name+"/"+k.name, func(b *testing.B) { exchange(b, k.addr, k.o, size.out, size.back) })
		}
	}
}

const turns = 10

func exchange(b *testing.B, addr string, o Options, out, back int) {
	bare := newBarePair(b, addr, out, back)
	defer bare.stop()
	pair := newVanPair(b, addr, o, out, back)
	defer pair.stop()
	per := max(b.N/turns, 1)
	sides := []side{bare, pair}
	times := [2][]float64{make([]float64, 0, turns*per), make([]float64, 0, turns*per)}
	var before, after runtime.MemStats
	for _, s := range sides {
		batch(s, 20, nil)
	}
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for range turns {
		for i, s := range sides {
			times[i] = batch(s, per, times[i])
		}
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(turns*per), "allocs/exchange")
	for _, t := range times {
		slices.Sort(t)
	}
	for _, q := range []int{10, 50} {
		bare, van := times[0][len(times[0])*q/100], times[1][len(times[1])*q/100]
		b.ReportMetric(bare/1000, fmt.Sprintf("bare-p%d-us", q))
		b.ReportMetric(van/1000, fmt.Sprintf("van-p%d-us", q))
		b.ReportMetric(van/bare, fmt.Sprintf("ratio-p%d", q))
	}
}

// written is memory with pages of its own. Memory that was never written is all one page of zeros,
// which is always in the cache.
func written(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// side is one of the two ways to exchange.
type side interface {
	round() // there and back
	echo()  // the other end of a round
	stop()
}

// batch makes n rounds with a thread of its own for the other end, so that
// nobody else spins, and appends their times in ns.
func batch(s side, n int, times []float64) []float64 {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for range n {
			s.echo()
		}
	}()
	for range n {
		began := time.Now()
		s.round()
		times = append(times, float64(time.Since(began).Nanoseconds()))
	}
	<-done
	return times
}

// barePair is two sockets.
type barePair struct {
	fds        [2]int
	out, back  []byte
	in, answer []byte
}

func newBarePair(b *testing.B, addr string, out, back int) *barePair {
	network := "tcp"
	if a, err := parseAddress(addr); err == nil && a.unix {
		network, addr = "unix", a.text+"-bare"
	}
	l, err := net.Listen(network, addr)
	require.NoError(b, err)
	c, err := net.Dial(network, l.Addr().String())
	require.NoError(b, err)
	s, err := l.Accept()
	require.NoError(b, err)
	var fds [2]int
	for i, c := range []net.Conn{c, s} {
		fds[i], err = sys.Duplicate(c.(syscall.Conn))
		require.NoError(b, err)
		tune(fds[i], network == "unix", 0)
		_ = c.Close()
	}
	_ = l.Close()
	return &barePair{fds: fds, out: written(out), back: written(back), in: written(out), answer: written(back)}
}

func (p *barePair) round() {
	bareSend(p.fds[0], p.out)
	bareRecv(p.fds[0], p.back)
}

func (p *barePair) echo() {
	bareRecv(p.fds[1], p.in)
	bareSend(p.fds[1], p.answer)
}

func (p *barePair) stop() { sys.CloseAll(p.fds[:]) }

func bareSend(fd int, b []byte) bool {
	for len(b) > 0 {
		n, e := sys.Sendmsg(fd, []unix.Iovec{sys.Iovec(b)})
		if e != 0 && e != sys.Again {
			return false
		}
		if e == 0 {
			b = b[n:]
		}
	}
	return true
}

func bareRecv(fd int, b []byte) bool {
	for len(b) > 0 {
		n, e := sys.Recv(fd, b, 0)
		if e != 0 && e != sys.Again || e == 0 && n == 0 {
			return false
		}
		if e == 0 {
			b = b[n:]
		}
	}
	return true
}

// fixed is a Placer with one destination.
type fixed []byte

func (f fixed) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, f[:h.Payload]), nil
}

// talker is one side of a van pair.
type talker struct {
	v      van.Van
	ep     van.Endpoint
	m      *van.Message
	events [16]van.Event
	heard  int
}

func newTalker(b testing.TB, o Options, send, receive int) *talker {
	o.Placer = fixed(written(receive))
	v, err := New(o)
	require.NoError(b, err)
	return &talker{v: v, m: message(1, 40, written(send))}
}

func (k *talker) poll(all bool) {
	for _, e := range k.events[:k.v.Poll(k.events[:], all)] {
		switch e.Kind {
		case van.EventAccepted:
			k.ep = e.Endpoint
		case van.EventMessage:
			k.heard++
			e.Delivery.Release()
		case van.EventLost:
			k.heard = -1 << 60
		}
	}
}

// listenFor polls until a message has come; false when the peer is gone.
func (k *talker) listenFor() bool {
	for i := 0; k.heard == 0; i++ {
		k.poll(false)
	}
	k.heard--
	return k.heard >= 0
}

func (k *talker) say() {
	for k.ep.Send(k.m) != nil {
		k.poll(true)
	}
}

type vanPair struct{ a, z *talker }

func newVanPair(b testing.TB, addr string, o Options, out, back int) *vanPair {
	p := &vanPair{newTalker(b, o, out, back), newTalker(b, o, back, out)}
	bound, err := p.z.v.Listen(addr)
	require.NoError(b, err)
	p.a.ep, err = p.a.v.Dial(context.Background(), bound)
	require.NoError(b, err)
	return p
}

func (p *vanPair) stop() {
	_ = p.a.v.Close()
	_ = p.z.v.Close()
}

func (p *vanPair) round() {
	p.a.say()
	p.a.listenFor()
}

func (p *vanPair) echo() {
	p.z.listenFor()
	p.z.say()
	for p.z.ep.(*endpoint).w.out.pending() { // nobody polls between two batches
		p.z.poll(false)
	}
}
