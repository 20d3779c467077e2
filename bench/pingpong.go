package bench

import (
	"runtime"
	"time"
)

// limiter is one side of the least that an exchange can be: bytes go out, others come
// back. Worker 0 calls exchange, server 0 as often answer. One goroutine at a time.
type limiter interface {
	exchange() error
	answer() error
	close()
}

// socketLimit exchanges over a bare socket, into one buffer for each direction.
type socketLimit struct {
	socket     *rawSocket
	push, pull []byte
}

func newSocketLimit(s *rawSocket, sizes *spec) *socketLimit {
	return &socketLimit{socket: s, push: make([]byte, sizes.Push), pull: make([]byte, sizes.Pull)}
}

func (l *socketLimit) exchange() error {
	if err := l.socket.send(l.push); err != nil {
		return err
	}
	return l.socket.receive(l.pull)
}

func (l *socketLimit) answer() error {
	if err := l.socket.receive(l.push); err != nil {
		return err
	}
	return l.socket.send(l.pull)
}

func (l *socketLimit) close() { l.socket.close() }

// timeLimit runs the worker's side of count exchanges.
func timeLimit(l limiter, count int, into latencies) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for last := time.Now(); count > 0; count-- {
		if err := l.exchange(); err != nil {
			return err
		}
		next := time.Now()
		into.add(next.Sub(last))
		last = next
	}
	return nil
}

// answerLimit runs the server's side.
func answerLimit(l limiter, count int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ; count > 0; count-- {
		if err := l.answer(); err != nil {
			return err
		}
	}
	return nil
}
