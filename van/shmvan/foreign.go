package shmvan

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// canRead finds out whether this process may read the peer's memory: it reads what the peer has told about itself.
// That fails where the kernel forbids it (yama, seccomp, missing rights) or the pid is another
// process's from here (pid namespaces).
func (p *peer) canRead() bool {
	if p.hello.At == 0 || p.pid <= 0 {
		return false
	}
	var got [len(p.hello.Nonce)]byte
	n, err := sys.ReadProcess(p.pid, got[:], p.hello.At)
	return err == nil && n == len(got) && got == p.hello.Nonce
}

// readForeign copies a segment of the peer's memory. It asks afterwards whether the peer still lives:
// if so, the pid was the peer's all the time.
func (r *receiver) readForeign(s segment) error {
	if !r.canRead {
		return errs.Protocol("segment", 0, "an address, which this process cannot read")
	}
	a := &r.arrival
	for s.n > 0 {
		next := a.at
		to := next.Next(a.dst, int64(s.n))
		if len(to) == 0 {
			a.at = next
			continue
		}
		n, err := sys.ReadProcess(r.conn.peer.pid, to, s.at)
		if err != nil {
			return unreadable(err, s, to)
		}
		s.at, s.n = s.at+uint64(n), s.n-uint64(n)
		a.at.Skip(a.dst, int64(n))
	}
	if r.conn.peer.ended() {
		return fmt.Errorf("%w: it ended while its memory was read", stepvan.ErrPeerLost)
	}
	return nil
}

// unreadable is the reason of a loss. EFAULT says that one of the two programs has unmapped a tensor, not which.
func unreadable(err error, s segment, to []byte) error {
	if !errors.Is(err, unix.EFAULT) {
		return fmt.Errorf("%w: its memory cannot be read: %w", stepvan.ErrPeerLost, err)
	}
	if own := shm.Unmapped([][]byte{to}); own != nil {
		return own
	}
	return fmt.Errorf("%w: it has unmapped the memory of a tensor in use, %d bytes at %#x of its process: its program must keep it until the exchange has ended (%w)",
		stepvan.ErrPeerLost, s.n, s.at, err)
}
