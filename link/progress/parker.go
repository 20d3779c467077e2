package progress

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// parker is where the background driver sleeps.
type parker interface {
	// park calls turn, and again whenever there may be something to do, until turn returns true.
	park(turn func() bool)
	// wake makes park call turn once more. Any goroutine.
	wake()
	close()
}

func newParker(fds []int) (parker, error) {
	if len(fds) == 0 {
		return &channelParker{bell: make(chan struct{}, 1)}, nil
	}
	return newEpollParker(fds)
}

// channelParker serves sources without descriptors.
type channelParker struct{ bell chan struct{} }

func (p *channelParker) park(turn func() bool) {
	for !turn() {
		<-p.bell
	}
}

func (p *channelParker) wake() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

func (p *channelParker) close() {}

// epollParker sleeps on one epoll set, itself watched by Go's netpoller: a parked
// driver occupies no thread.
type epollParker struct {
	set   *os.File
	conn  syscall.RawConn
	mu    sync.Mutex  // guards event against close: a number that is free again names something else
	event int         // eventfd for wake, -1 when closed
	rung  atomic.Bool // event has been written and not read
	in    [8]byte
	out   [8]byte
	turn  func() bool
	step  func(uintptr) bool
}

func newEpollParker(fds []int) (*epollParker, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("progress: epoll_create1: %w", err)
	}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(ep)
		return nil, fmt.Errorf("progress: eventfd: %w", err)
	}
	p := &epollParker{event: ev, out: [8]byte{1}}
	for _, fd := range append([]int{ev}, fds...) {
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			_, _ = unix.Close(ep), unix.Close(ev)
			return nil, fmt.Errorf("progress: epoll_ctl of descriptor %d: %w", fd, err)
		}
	}
	if err := unix.SetNonblock(ep, true); err != nil {
		_, _ = unix.Close(ep), unix.Close(ev)
		return nil, fmt.Errorf("progress: set non-blocking: %w", err)
	}
	p.set = os.NewFile(uintptr(ep), "stepvan progress")
	if p.conn, err = p.set.SyscallConn(); err != nil {
		p.close()
		return nil, fmt.Errorf("progress: %w", err)
	}
	p.step = func(uintptr) bool {
		p.drain()
		return p.turn()
	}
	return p, nil
}

func (p *epollParker) park(turn func() bool) {
	p.turn = turn
	if err := p.conn.Read(p.step); err != nil {
		// The set is closed, which only Engine.Close does after the driver has ended.
		return
	}
}

func (p *epollParker) drain() {
	if p.rung.Load() {
		_, _ = unix.Read(p.event, p.in[:])
		p.rung.Store(false) // whoever rang in between is served by the turn that follows
	}
}

func (p *epollParker) wake() {
	if p.rung.Swap(true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.event >= 0 {
		_, _ = unix.Write(p.event, p.out[:])
	}
}

func (p *epollParker) close() {
	_ = p.set.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(p.event)
	p.event = -1
}
