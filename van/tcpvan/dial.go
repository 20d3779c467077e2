package tcpvan

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

const attemptTime = 5 * time.Second // for one address

// Dial implements van.Van. Poll may report events of the endpoint before Dial has returned, so a caller could miss
// its EventLost. Such a caller finds out from the first Send, which then fails.
func (v *tcpVan) Dial(ctx context.Context, text string) (van.Endpoint, error) {
	ep, err := v.dial(ctx, text)
	if err != nil {
		return nil, &stepvan.OpError{Op: "dial", Van: name, Peer: text, Err: err}
	}
	return ep, nil
}

func (v *tcpVan) dial(ctx context.Context, text string) (*endpoint, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	retry := parts.Retry{MayPass: mayAnswerLater, First: 2 * time.Millisecond, Last: 250 * time.Millisecond}
	fds, err := parts.Dial(ctx, v.ctx, retry, func(ctx context.Context) ([]int, error) { return v.attempt(ctx, a) })
	if err != nil {
		return nil, err
	}
	ep := v.newEndpoint(fds, v.opts.RailThreshold, text)
	return ep, v.join(ep)
}

// mayAnswerLater reports whether the same address may answer later.
func mayAnswerLater(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return false
	}
	return !errors.Is(err, stepvan.ErrInvalid)
}

// attempt connects all rails once.
func (v *tcpVan) attempt(ctx context.Context, a address) (fds []int, err error) {
	hello := preamble{count: v.opts.Rails, threshold: v.opts.RailThreshold}
	if hello.count > 1 {
		_, _ = rand.Read(hello.nonce[:])
	}
	targets, err := a.targets(ctx, v.opts.Local)
	if err != nil {
		return nil, err
	}
	for hello.index = range hello.count {
		fd, used, err := connectAny(ctx, a, targets, v.opts.SocketBuffer)
		if err == nil {
			fds = append(fds, fd)
			targets = targets[used : used+1] // all rails go the same way
			err = introduce(fd, hello)
		}
		if err != nil {
			sys.CloseAll(fds)
			return nil, err
		}
	}
	return fds, nil
}

// connectAny connects to the first target that answers.
func connectAny(ctx context.Context, a address, targets []string, buffer int) (fd, used int, err error) {
	for i, t := range targets {
		fd, e := connectOne(ctx, a, t, buffer)
		if e == nil {
			return fd, i, nil
		}
		if err == nil {
			err = e // of the preferred address
		}
	}
	return -1, 0, err
}

func connectOne(ctx context.Context, a address, target string, buffer int) (int, error) {
	d := net.Dialer{Timeout: attemptTime, KeepAlive: -1}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, a.network(), target)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
			return -1, fmt.Errorf("%w: is the other side running there, and does it listen already?", netCause(err))
		}
		return -1, netCause(err)
	}
	defer func() { _ = c.Close() }()
	fd, err := sys.Duplicate(c.(syscall.Conn))
	if err != nil {
		return -1, errs.Descriptors(err)
	}
	tune(fd, a.unix, buffer)
	return fd, nil
}

// introduce sends the preamble, for which a fresh socket has room.
func introduce(fd int, p preamble) error {
	b := p.encode()
	n, e := sys.Send(fd, b)
	if e != 0 {
		return e
	}
	if n != len(b) {
		return unix.ENOBUFS
	}
	return nil
}
