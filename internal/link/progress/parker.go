package progress

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// parker is where the driver sits, and where a waiter naps.
type parker interface {
	// sit calls turn, and again whenever the driver was woken, until turn returns true.
	sit(turn func() (leave bool))
	// wake makes sit call turn once more. Any goroutine.
	wake()
	// listen says whether descriptors wake the driver. Those that are quiet do so until somebody naps. Holder of the token.
	listen(on bool)
	// nap sleeps until something comes, somebody calls rouse, or d has passed: then it may report that. A d below 0
	// has no end, where sleeping costs nothing; there cancel ends it as well. Holder of the token.
	nap(d time.Duration, cancel <-chan struct{}) (passed bool)
	// rouse ends a nap. Any goroutine.
	rouse()
	close()
}

func newParker(fds []Descriptor) (parker, error) {
	if len(fds) == 0 {
		return &channelParker{bell: make(chan struct{}, 1), alarm: make(chan struct{}, 1)}, nil
	}
	return newEpollParker(fds)
}

// channelParker serves sources without descriptors: who sleeps occupies no thread, and who is woken runs
// next on the processor of the one that has woken it.
type channelParker struct {
	bell  chan struct{} // for the driver
	alarm chan struct{} // for the napper
	timer *time.Timer   // of naps with a limit
}

func (p *channelParker) sit(turn func() bool) {
	for !turn() {
		<-p.bell
	}
}

func (p *channelParker) wake()  { offer(p.bell) }
func (p *channelParker) rouse() { offer(p.alarm) }

func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *channelParker) nap(d time.Duration, cancel <-chan struct{}) (passed bool) {
	if d < 0 {
		select {
		case <-p.alarm:
		case <-cancel:
		}
		return false
	}
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.alarm:
	case <-cancel:
	case <-p.timer.C:
		return true
	}
	p.timer.Stop()
	return false
}

func (p *channelParker) listen(bool) {}
func (p *channelParker) close()      {}

// epollParker has the driver sit on one epoll set, itself watched by Go's netpoller: it
// occupies no thread. A napper sleeps on the descriptors themselves, and does occupy one.
type epollParker struct {
	set      *os.File
	conn     syscall.RawConn
	ep       int   // the number of set, which the holder of the token keeps from being closed
	call     *bell // for the driver
	alarm    *bell // for the napper
	loud     []int // descriptors that are not quiet
	quiet    []int // the others, but for call's
	hushed   bool  // the quiet ones do not wake the driver either
	sleepers []unix.PollFd
	told     unix.EpollEvent
	turn     func() bool
	step     func(uintptr) bool
}

func newEpollParker(fds []Descriptor) (*epollParker, error) {
	p := &epollParker{}
	p.step = func(uintptr) bool {
		p.call.answer()
		return p.turn()
	}
	if err := p.open(fds); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *epollParker) open(fds []Descriptor) (err error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("progress: epoll_create1: %w", err)
	}
	p.ep = ep
	err = unix.SetNonblock(ep, true)
	p.set = os.NewFile(uintptr(ep), "stepvan progress")
	if err != nil {
		return fmt.Errorf("progress: set non-blocking: %w", err)
	}
	if p.call, err = newBell(); err != nil {
		return err
	}
	if p.alarm, err = newBell(); err != nil {
		return err
	}
	p.sleepers = append(p.sleepers, unix.PollFd{Fd: int32(p.alarm.fd), Events: unix.POLLIN})
	for _, d := range append([]Descriptor{{FD: p.call.fd, Quiet: true}}, fds...) {
		if err := p.add(d); err != nil {
			return err
		}
	}
	if p.conn, err = p.set.SyscallConn(); err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

func (p *epollParker) add(d Descriptor) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(d.FD)}
	if !d.Quiet {
		e.Events = 0
		p.loud = append(p.loud, d.FD)
	}
	if err := unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, d.FD, &e); err != nil {
		return fmt.Errorf("progress: epoll_ctl of descriptor %d: %w", d.FD, err)
	}
	if d.FD != p.call.fd {
		if d.Quiet {
			p.quiet = append(p.quiet, d.FD)
		}
		p.sleepers = append(p.sleepers, unix.PollFd{Fd: int32(d.FD), Events: unix.POLLIN})
	}
	return nil
}

func (p *epollParker) sit(turn func() bool) {
	p.turn = turn
	if err := p.conn.Read(p.step); err != nil {
		// The set is closed, which only Engine.Close does after the driver has ended.
		return
	}
}

func (p *epollParker) wake()  { p.call.ring() }
func (p *epollParker) rouse() { p.alarm.ring() }

// listen costs one system call for each loud descriptor, and one more to listen. The kernel looks anew
// at a descriptor that is listened to again, but tells nobody of one that is still in its list from
// before: so the list is looked at too, which takes those out that have nothing any more.
func (p *epollParker) listen(on bool) {
	p.heed(p.loud, on)
	changed := on && len(p.loud) > 0
	if on && p.hushed {
		p.hushed, changed = false, true
		p.heed(p.quiet, true)
	}
	if changed && p.pending() {
		p.call.ring()
	}
}

// heed says whether descriptors wake the driver.
func (p *epollParker) heed(fds []int, on bool) {
	var mask uint32
	if on {
		mask = unix.EPOLLIN
	}
	for _, fd := range fds {
		e := unix.EpollEvent{Events: mask, Fd: int32(fd)}
		_ = unix.EpollCtl(p.ep, unix.EPOLL_CTL_MOD, fd, &e)
	}
}

// pending reports whether a descriptor has something to tell.
func (p *epollParker) pending() bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.ep), uintptr(unsafe.Pointer(&p.told)), 1, 0, 0, 0)
	return errno == 0 && n > 0
}

// nap leaves the descriptors to the napper alone: what wakes it would wake the driver as well, on another processor.
func (p *epollParker) nap(d time.Duration, _ <-chan struct{}) (passed bool) {
	if !p.hushed {
		p.hushed = true
		p.heed(p.quiet, false)
	}
	limit := unix.NsecToTimespec(int64(d))
	_, _ = unix.Ppoll(p.sleepers, &limit, nil)
	p.alarm.answer()
	return false
}

func (p *epollParker) close() {
	if p.set != nil {
		_ = p.set.Close()
	}
	for _, b := range []*bell{p.call, p.alarm} {
		if b != nil {
			b.close()
		}
	}
}
