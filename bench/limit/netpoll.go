package limit

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// parked is a connection whose reader sleeps in Go's poller.
type parked struct {
	net.Conn
	out, in []byte
}

func (p *parked) send() error {
	_, err := p.Write(p.out)
	return gone("write", err)
}

func (p *parked) receive() error {
	_, err := io.ReadFull(p.Conn, p.in)
	return gone("read", err)
}

func (p *parked) buffers() (out, in []byte) { return p.out, p.in }

func (p *parked) close() { p.Conn.Close() }

// gone makes one error of the ways in which a closed connection shows.
func gone(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("%s: %w", what, errGone)
	}
	return fmt.Errorf("%s: %w", what, err)
}
