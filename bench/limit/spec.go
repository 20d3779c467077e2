package limit

import (
	"crypto/rand"
	"runtime"

	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/internal/errs"
)

// Kind is what carries the bytes.
type Kind string

// The kinds.
const (
	Socket      Kind = "socket"
	UnixSocket  Kind = "unix socket"
	Netpoll     Kind = "netpoll"
	UnixNetpoll Kind = "unix netpoll"
	Memory      Kind = "memory"
	Perftest    Kind = "perftest"
)

// Spec is what both sides must agree on.
type Spec struct {
	Kind    Kind
	Push    int64     // bytes to each answerer; 0 with Memory only
	Pull    int64     // bytes from each answerer; 0 with Memory only
	Head    int64     // with Perftest: bytes that a small message has besides
	Parties int       // threads that spin: the caller and its answerers
	Inside  bool      // all sides are goroutines of one process
	InPlace bool      // with Memory: the sides write their bytes where the other side reads them
	Rows    Rows      // that the answerer picks; with one answerer
	Work    work.Spec // what the sides do besides; with one answerer
}

// check refuses what a mistaken side may ask for.
func (s *Spec) check() error {
	least := int64(1)
	switch s.Kind {
	case Memory:
		least = 0
	case Socket, UnixSocket, Netpoll, UnixNetpoll, Perftest:
	default:
		return errs.Invalid("%q is not a kind of limit", s.Kind)
	}
	if s.Push < least || s.Pull < least {
		return errs.Invalid("a limit of %d and %d bytes, want %d at least", s.Push, s.Pull, least)
	}
	if err := s.Rows.check(); err != nil {
		return err
	}
	return s.Work.Check(s.Push, s.Pull)
}

// network is where sockets of the kind listen, and at which address.
func (s *Spec) network() (network, addr string) {
	switch s.Kind {
	case UnixSocket, UnixNetpoll:
		return "unix", "@stepvan-limit-" + rand.Text() // no file
	}
	return "tcp", "127.0.0.1:0"
}

// parks reports whether a waiting side gives its thread away.
func (s *Spec) parks() bool { return s.Kind == Netpoll || s.Kind == UnixNetpoll }

// spin is how a side waits. With fewer cores than parties it yields its core at once.
func (s *Spec) spin() spin {
	return spin{crowded: s.Parties > runtime.NumCPU(), inside: s.Inside && runtime.GOMAXPROCS(0) == 1}
}

// lock keeps a side on one thread, until release is called.
func (s *Spec) lock() (release func()) {
	if s.parks() || s.Inside && runtime.GOMAXPROCS(0) == 1 {
		return func() {}
	}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// written makes a buffer of pages of its own.
func written(bytes int64) []byte {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}
