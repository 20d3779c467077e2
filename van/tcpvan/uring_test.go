package tcpvan

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
)

// This is the least of io_uring (linux/io_uring.h) that sends and receives, one operation at a time. A look for a
// completion is a system call, in which the kernel also continues the operation. The other way is to spin on the ring
// in memory, where the kernel interrupts the thread for each step of the operation. That takes 2.3 times as long for
// 64 KiB, and 1.6 times for 8 MiB.

const (
	ringEntries     = 8
	coopTaskrun     = 1 << 8  // IORING_SETUP_COOP_TASKRUN
	getEvents       = 1 << 0  // IORING_ENTER_GETEVENTS
	opSend          = 26      // IORING_OP_SEND
	opRecv          = 27      // IORING_OP_RECV
	opSendZC        = 47      // IORING_OP_SEND_ZC
	fixedBuffer     = 1 << 2  // IORING_RECVSEND_FIXED_BUF
	reportUsage     = 1 << 3  // IORING_SEND_ZC_REPORT_USAGE
	cqeMore         = 1 << 1  // IORING_CQE_F_MORE: a notification follows
	cqeNotification = 1 << 3  // IORING_CQE_F_NOTIF
	usageCopied     = 1 << 31 // IORING_NOTIF_USAGE_ZC_COPIED
	registerBuffers = 0       // IORING_REGISTER_BUFFERS
	offsetCQ        = 0x8000000
	offsetSQEs      = 0x10000000
)

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// ringSQE is struct io_uring_sqe.
type ringSQE struct {
	op, flags   uint8
	ioprio      uint16
	fd          int32
	offset      uint64
	address     uint64
	length      uint32
	opFlags     uint32
	user        uint64
	bufferIndex uint16
	_           [22]byte
}

// ringCQE is struct io_uring_cqe.
type ringCQE struct {
	user   uint64
	result int32
	flags  uint32
}

func setupRing(p *ringParams) (int, error) {
	p.flags = coopTaskrun
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, ringEntries, uintptr(unsafe.Pointer(p)), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// ringProbe says why there is no io_uring: seccomp or a sysctl may refuse it.
func ringProbe() error {
	fd, err := setupRing(new(ringParams))
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// ring is one io_uring. Its user is one thread.
type ring struct {
	fd             int
	sq, cq, sqes   []byte
	p              ringParams
	sends, copies  int
	tailSQ, headCQ uint32
}

func newRing(b testing.TB) *ring {
	r := &ring{}
	var err error
	r.fd, err = setupRing(&r.p)
	require.NoError(b, err)
	mapped := func(offset int64, size uint32) []byte {
		m, err := unix.Mmap(r.fd, offset, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		require.NoError(b, err)
		return m
	}
	r.sq = mapped(0, r.p.sq.array+r.p.sqEntries*4)
	r.cq = mapped(offsetCQ, r.p.cq.cqes+r.p.cqEntries*uint32(unsafe.Sizeof(ringCQE{})))
	r.sqes = mapped(offsetSQEs, r.p.sqEntries*uint32(unsafe.Sizeof(ringSQE{})))
	return r
}

func (r *ring) close() {
	for _, m := range [][]byte{r.sq, r.cq, r.sqes} {
		_ = unix.Munmap(m)
	}
	_ = unix.Close(r.fd)
}

// register pins memory for operations that name it by its index.
func (r *ring) register(b testing.TB, buffers ...[]byte) {
	var list []unix.Iovec
	for _, m := range buffers {
		list = append(list, sys.Iovec(m))
	}
	_, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerBuffers, uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)), 0, 0)
	require.Zero(b, e)
}

// submit has the kernel begin an operation.
func (r *ring) submit(s ringSQE) {
	i := r.tailSQ & (r.p.sqEntries - 1)
	*(*ringSQE)(unsafe.Pointer(&r.sqes[uintptr(i)*unsafe.Sizeof(s)])) = s
	*(*uint32)(unsafe.Pointer(&r.sq[r.p.sq.array+4*i])) = i
	r.tailSQ++
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&r.sq[r.p.sq.tail])), r.tailSQ)
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 0, 0, 0, 0)
		if n == 1 && e == 0 {
			return
		}
		if e != unix.EINTR {
			panic(fmt.Sprintf("io_uring_enter: %d, %v", n, e))
		}
	}
}

// complete spins until there is a completion.
func (r *ring) complete() ringCQE {
	for atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.cq[r.p.cq.tail]))) == r.headCQ {
		_, _, _ = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 0, getEvents, 0, 0)
	}
	i := r.headCQ & (r.p.cqEntries - 1)
	c := *(*ringCQE)(unsafe.Pointer(&r.cq[r.p.cq.cqes+i*uint32(unsafe.Sizeof(ringCQE{}))]))
	r.headCQ++
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&r.cq[r.p.cq.head])), r.headCQ)
	return c
}

// move sends or receives all of b, which is registered as buffer 0 where zero is set.
func (r *ring) move(fd int, op uint8, b []byte, zero bool) {
	for len(b) > 0 {
		s := ringSQE{op: op, fd: int32(fd), address: uint64(uintptr(unsafe.Pointer(&b[0]))), length: uint32(len(b)), opFlags: unix.MSG_WAITALL | unix.MSG_NOSIGNAL}
		if zero {
			s.op, s.ioprio = opSendZC, fixedBuffer|reportUsage
		}
		r.submit(s)
		c := r.complete()
		if c.result <= 0 {
			panic(fmt.Sprintf("io_uring: operation %d: %v", s.op, unix.Errno(-c.result)))
		}
		if zero {
			r.sends++
		}
		if c.flags&cqeMore != 0 {
			r.awaitNotification()
		}
		b = b[c.result:]
	}
}

// awaitNotification waits until the kernel is done with the memory of a send.
func (r *ring) awaitNotification() {
	c := r.complete()
	if c.flags&cqeNotification == 0 {
		panic(fmt.Sprintf("io_uring: not a notification: %+v", c))
	}
	if uint32(c.result)&usageCopied != 0 {
		r.copies++
	}
}

// ringPair exchanges by io_uring, one ring for each end.
type ringPair struct {
	plainPair
	rings [2]*ring
	zero  bool
}

func newRingPair(b testing.TB, w wires, size int, zero bool) *ringPair {
	p := &ringPair{plainPair: newPlainPair(b, w, size), zero: zero}
	for i, fd := range p.fds {
		require.NoError(b, unix.SetNonblock(fd, false)) // else the ring says EAGAIN, and does not wait
		p.rings[i] = newRing(b)
	}
	p.rings[0].register(b, p.out)
	p.rings[1].register(b, p.answer)
	return p
}

func (p *ringPair) round() {
	p.rings[0].move(p.fds[0], opSend, p.out, p.zero)
	p.rings[0].move(p.fds[0], opRecv, p.back, false)
}

func (p *ringPair) echo() {
	p.rings[1].move(p.fds[1], opRecv, p.in, false)
	p.rings[1].move(p.fds[1], opSend, p.answer, p.zero)
}

func (p *ringPair) copied() (sends, copied int) {
	for _, r := range p.rings {
		sends, copied = sends+r.sends, copied+r.copies
	}
	return sends, copied
}

func (p *ringPair) stop() {
	for _, r := range p.rings {
		r.close()
	}
	p.plainPair.stop()
}
