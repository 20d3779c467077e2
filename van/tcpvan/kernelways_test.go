package tcpvan

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkKernelWays compares the ways in which the kernel moves bytes between two sockets:
//
//   - sendmsg and recv of sockets that do not block, which is what the van does,
//   - sendmsg with MSG_ZEROCOPY,
//   - io_uring with and without copying.
//
// A round is the payload there and back between two spinning threads. The ways take turns, so that all see the same
// machine. The bytes go over loopback and, for root, over a veth pair between two network namespaces.
//
// "copied" is the share of zero-copy sends that the kernel had to copy after all.
func BenchmarkKernelWays(b *testing.B) {
	for _, n := range []struct {
		name  string
		wires func(testing.TB) wires
	}{{"loopback", loopback}, {"veth", veth}} {
		b.Run(n.name, func(b *testing.B) {
			w := n.wires(b)
			for _, size := range []int{64 << 10, 896 << 10, 8 << 20} {
				b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { kernelWays(b, w, size) })
			}
		})
	}
}

// kernelPair is a side with a name; copied reports zero-copy sends and those that were copied, by both ends.
type kernelPair interface {
	side
	copied() (sends, copied int)
}

func kernelWays(b *testing.B, w wires, size int) {
	names := []string{"plain", "zerocopy"}
	pairs := []kernelPair{newPlainPair(b, w, size), newZeroPair(b, w, size)}
	if err := ringProbe(); err != nil {
		b.Logf("io_uring is not measured: io_uring_setup: %v", err)
	} else {
		names = append(names, "uring", "uring-zerocopy")
		pairs = append(pairs, newRingPair(b, w, size, false), newRingPair(b, w, size, true))
	}
	times := make([][]float64, len(pairs))
	per := max(b.N/turns, 1)
	for i, k := range pairs {
		defer k.stop()
		batch(k, 20, nil)
		times[i] = make([]float64, 0, turns*per)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ResetTimer()
	for range turns {
		for i, k := range pairs {
			times[i] = batch(k, per, times[i])
		}
	}
	b.StopTimer()
	for i, k := range pairs {
		slices.Sort(times[i])
		p50 := times[i][len(times[i])/2]
		b.ReportMetric(p50/1000, names[i]+"-us")
		if i == 0 {
			continue
		}
		b.ReportMetric(p50/times[0][len(times[0])/2], names[i]+"/plain")
		if sends, copied := k.copied(); sends > 0 {
			b.ReportMetric(float64(copied)/float64(sends), names[i]+"-copied")
		}
	}
}

// plainPair sends and receives as the van does.
type plainPair struct{ *barePair }

func (plainPair) copied() (sends, copied int) { return 0, 0 }

func newPlainPair(b testing.TB, w wires, size int) plainPair {
	return plainPair{&barePair{
		fds: w(), out: written(size), back: written(size), in: written(size), answer: written(size),
	}}
}

// zeroPair sends with MSG_ZEROCOPY. An end has done its part when the kernel is done with its memory, because a van
// must know that before its caller may write the source again.
type zeroPair struct {
	plainPair
	ends [2]zeroEnd
}

type zeroEnd struct {
	fd                  int
	sends, done, copies int // calls that sent something; those the kernel is done with; those it copied
}

func newZeroPair(b testing.TB, w wires, size int) *zeroPair {
	p := &zeroPair{plainPair: newPlainPair(b, w, size)}
	for i, fd := range p.fds {
		require.NoError(b, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1))
		p.ends[i].fd = fd
	}
	return p
}

func (p *zeroPair) round() {
	p.ends[0].send(p.out)
	bareRecv(p.fds[0], p.back)
	p.ends[0].settle()
}

func (p *zeroPair) echo() {
	bareRecv(p.fds[1], p.in)
	p.ends[1].send(p.answer)
	p.ends[1].settle()
}

func (p *zeroPair) copied() (sends, copied int) {
	for i := range p.ends {
		sends, copied = sends+p.ends[i].sends, copied+p.ends[i].copies
	}
	return sends, copied
}

func (e *zeroEnd) send(b []byte) {
	for len(b) > 0 {
		n, err := unix.SendmsgN(e.fd, b, nil, nil, unix.MSG_ZEROCOPY|unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			e.sends++
			b = b[n:]
		case unix.ENOBUFS: // too many notifications are out
			e.reap()
		case unix.EAGAIN:
		default:
			panic(err)
		}
	}
}

func (e *zeroEnd) settle() {
	for e.done < e.sends {
		e.reap()
	}
}

// reap takes one notification from the error queue; each covers a range of sends.
func (e *zeroEnd) reap() {
	var control [128]byte
	_, n, _, _, err := unix.Recvmsg(e.fd, nil, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err == unix.EAGAIN {
		return
	}
	if err != nil {
		panic(err)
	}
	list, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		panic(err)
	}
	for _, m := range list {
		x := extendedError(m.Data)
		if x.Origin != unix.SO_EE_ORIGIN_ZEROCOPY {
			panic(fmt.Sprintf("error queue: %+v", x))
		}
		sends := int(x.Data-x.Info) + 1
		e.done += sends
		if x.Code&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0 {
			e.copies += sends
		}
	}
}
