package progress

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/stepvan/stepvan/internal/sys"
	"golang.org/x/sys/unix"
)

// epollSleeper has the background driver wait for one epoll set, which Go's netpoller watches, so that the background
// driver occupies no thread. The holder of the token sleeps on the descriptors themselves, and occupies a thread.
type epollSleeper struct {
	set        *os.File
	conn       syscall.RawConn
	ep         int      // the number of set, which the holder of the token keeps from being closed
	background *eventfd // wakes the background driver
	holder     *eventfd // wakes the sleeping holder of the token
	others     []int    // descriptors that are not quiet
	quiet      []int    // those that are, without the background driver's eventfd
	quietOff   bool     // the quiet ones do not wake the background driver either
	sleepFDs   []unix.PollFd
	firstSeen  [1]unix.EpollEvent
	turn       func() bool
	step       func(uintptr) bool
}

func newEpollSleeper(fds []Descriptor) (*epollSleeper, error) {
	s := &epollSleeper{}
	s.step = func(uintptr) bool {
		s.background.takeWake()
		return s.turn()
	}
	if err := s.open(fds); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *epollSleeper) open(fds []Descriptor) (err error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("progress: epoll_create1: %w", err)
	}
	s.ep = ep
	err = unix.SetNonblock(ep, true)
	s.set = os.NewFile(uintptr(ep), "stepvan progress")
	if err != nil {
		return fmt.Errorf("progress: set non-blocking: %w", err)
	}
	if s.background, err = newEventfd(); err != nil {
		return err
	}
	if s.holder, err = newEventfd(); err != nil {
		return err
	}
	s.sleepFDs = append(s.sleepFDs, unix.PollFd{Fd: int32(s.holder.fd), Events: unix.POLLIN})
	for _, d := range append([]Descriptor{{FD: s.background.fd, Quiet: true}}, fds...) {
		if err := s.add(d); err != nil {
			return err
		}
	}
	if s.conn, err = s.set.SyscallConn(); err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

func (s *epollSleeper) add(d Descriptor) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(d.FD)}
	if !d.Quiet {
		e.Events = 0
		s.others = append(s.others, d.FD)
	}
	if err := unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, d.FD, &e); err != nil {
		return fmt.Errorf("progress: epoll_ctl of descriptor %d: %w", d.FD, err)
	}
	if d.FD != s.background.fd {
		if d.Quiet {
			s.quiet = append(s.quiet, d.FD)
		}
		s.sleepFDs = append(s.sleepFDs, unix.PollFd{Fd: int32(d.FD), Events: unix.POLLIN})
	}
	return nil
}

func (s *epollSleeper) runBackground(turn func() bool) {
	s.turn = turn
	if err := s.conn.Read(s.step); err != nil {
		// The set is closed, which only Engine.Close does after the background driver has ended.
		return
	}
}

func (s *epollSleeper) wakeBackground() { s.background.wake() }
func (s *epollSleeper) wakeSleeper()    { s.holder.wake() }

// listen costs one system call for each descriptor that is not quiet, and one more to listen. The kernel checks a
// descriptor again when it is listened to again. It reports nothing, however, for a descriptor that is still in the
// ready list from before. So listen looks at the ready list, which takes out the descriptors that have nothing left.
func (s *epollSleeper) listen(on bool) {
	s.setEvents(s.others, on)
	changed := on && len(s.others) > 0
	if on && s.quietOff {
		s.quietOff, changed = false, true
		s.setEvents(s.quiet, true)
	}
	if changed && s.ready() {
		s.background.wake()
	}
}

// setEvents says whether descriptors wake the background driver.
func (s *epollSleeper) setEvents(fds []int, on bool) {
	var mask uint32
	if on {
		mask = unix.EPOLLIN
	}
	for _, fd := range fds {
		e := unix.EpollEvent{Events: mask, Fd: int32(fd)}
		_ = unix.EpollCtl(s.ep, unix.EPOLL_CTL_MOD, fd, &e)
	}
}

// ready reports whether a descriptor is readable.
func (s *epollSleeper) ready() bool { return sys.EpollWait(s.ep, s.firstSeen[:]) > 0 }

// sleep takes the quiet descriptors out of the background driver's set: what wakes the caller would otherwise wake the
// background driver as well, on another processor.
func (s *epollSleeper) sleep(d time.Duration, yields bool, _ <-chan struct{}) (passed bool) {
	if !s.quietOff {
		s.quietOff = true
		s.setEvents(s.quiet, false)
	}
	sys.Sleep(s.sleepFDs, d, yields)
	s.holder.takeWake()
	return false
}

func (s *epollSleeper) close() {
	if s.set != nil {
		_ = s.set.Close()
	}
	for _, f := range []*eventfd{s.background, s.holder} {
		if f != nil {
			f.close()
		}
	}
}
