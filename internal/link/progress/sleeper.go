package progress

import "time"

// sleeper puts the background driver and the holder of the token to sleep, and wakes them.
type sleeper interface {
	// runBackground calls turn, and again whenever the background driver was woken, until turn returns true.
	runBackground(turn func() (leave bool))
	// wakeBackground makes runBackground call turn once more. Any goroutine.
	wakeBackground()
	// listen says whether descriptors wake the background driver. Quiet ones do so until somebody sleeps. Holder of the
	// token.
	listen(on bool)
	// sleep returns when something comes, somebody calls wakeSleeper, or d has passed: then it may report that. A d
	// below 0 has no end, where sleeping costs nothing; there cancel ends it as well. With yields, goroutines of the
	// program may have the processor of the sleeper. Holder of the token.
	sleep(d time.Duration, yields bool, cancel <-chan struct{}) (passed bool)
	// wakeSleeper ends a sleep. Any goroutine.
	wakeSleeper()
	close()
}

func newSleeper(fds []Descriptor) (sleeper, error) {
	if len(fds) == 0 {
		return &channelSleeper{background: make(chan struct{}, 1), holder: make(chan struct{}, 1)}, nil
	}
	return newEpollSleeper(fds)
}

// channelSleeper serves sources without descriptors. A sleeping goroutine occupies no thread, and runs next on the
// processor of the goroutine that wakes it.
type channelSleeper struct {
	background chan struct{}
	holder     chan struct{}
	timer      *time.Timer // of sleeps with a limit
}

func (s *channelSleeper) runBackground(turn func() bool) {
	for !turn() {
		<-s.background
	}
}

func (s *channelSleeper) wakeBackground() { offer(s.background) }
func (s *channelSleeper) wakeSleeper()    { offer(s.holder) }

func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *channelSleeper) sleep(d time.Duration, _ bool, cancel <-chan struct{}) (passed bool) {
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
