package progress

import "time"

// sleeper is how the driver and the holder of the token sleep, and how they are woken.
type sleeper interface {
	// runDriver calls turn, and again whenever the driver was woken, until turn returns true.
	runDriver(turn func() (leave bool))
	// wakeDriver makes runDriver call turn once more. Any goroutine.
	wakeDriver()
	// listen says whether descriptors wake the driver. Quiet ones do so until somebody sleeps. Holder of the token.
	listen(on bool)
	// sleep returns when something comes, somebody calls wakeSleeper, or d has passed: then it may report that. A d
	// below 0 has no end, where sleeping costs nothing; there cancel ends it as well. Holder of the token.
	sleep(d time.Duration, cancel <-chan struct{}) (passed bool)
	// wakeSleeper ends a sleep. Any goroutine.
	wakeSleeper()
	close()
}

func newSleeper(fds []Descriptor) (sleeper, error) {
	if len(fds) == 0 {
		return &channelSleeper{driver: make(chan struct{}, 1), holder: make(chan struct{}, 1)}, nil
	}
	return newEpollSleeper(fds)
}

// channelSleeper serves sources without descriptors. A sleeping goroutine occupies no thread, and runs next on the
// processor of the goroutine that wakes it.
type channelSleeper struct {
	driver chan struct{}
	holder chan struct{}
	timer  *time.Timer // of sleeps with a limit
}

func (s *channelSleeper) runDriver(turn func() bool) {
	for !turn() {
		<-s.driver
	}
}

func (s *channelSleeper) wakeDriver()  { offer(s.driver) }
func (s *channelSleeper) wakeSleeper() { offer(s.holder) }

func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *channelSleeper) sleep(d time.Duration, cancel <-chan struct{}) (passed bool) {
	if d < 0 {
		select {
		case <-s.holder:
		case <-cancel:
		}
		return false
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	select {
	case <-s.holder:
	case <-cancel:
	case <-s.timer.C:
		return true
	}
	s.timer.Stop()
	return false
}

func (s *channelSleeper) listen(bool) {}
func (s *channelSleeper) close()      {}
