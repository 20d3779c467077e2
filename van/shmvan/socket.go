package shmvan

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

// Two kinds of message go through the socket after the hellos. Single bytes say no more than "wake up". Files come
// before the first record that names them: number and size, with the descriptor. Each connection has a socket of its
// own, so what a peer does to the socket hurts no other connection.
const (
	fileMagic        = 0x70617263656c0001
	fileMessageBytes = 24
	// maxSocketReads is how many messages one look at a socket takes, so that other endpoints have their turn.
	maxSocketReads = 64
)

var wakeByte = [1]byte{1}

// sendDescriptors sends without blocking. stepvan.ErrWouldBlock: not at this moment, because the peer has to read first
// or the kernel has to find memory.
func sendDescriptors(sock int, b []byte, fds ...int) error {
	switch err := sys.SendRights(sock, b, fds...); {
	case err == nil:
		return nil
	case isOneOf(err, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.ETOOMANYREFS):
		return stepvan.ErrWouldBlock
	case isOneOf(err, unix.EPIPE, unix.ECONNRESET):
		return stepvan.ErrPeerLost
	default:
		return fmt.Errorf("the kernel does not pass the descriptor on: %w: %w", err, stepvan.ErrNotSupported)
	}
}

// isOneOf reports whether err is one of the kernel's errors.
func isOneOf(err error, codes ...error) bool {
	return slices.ContainsFunc(codes, func(code error) bool { return errors.Is(err, code) })
}
