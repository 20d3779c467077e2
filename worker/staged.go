package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/staging"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// The processor does not reach memory of an accelerator. So pooled memory of the host stands for such tensors between
// the departure of an exchange and its landing. A goroutine copies the pushes there before the requests are sent
// (departure.go). Another one copies the answers to the accelerator before the handle completes (landing.go). What a
// device of the van moves is not copied (direct.go).

// stagedWork copies for the exchanges with tensors of an accelerator.
type stagedWork struct {
	stager     *staging.Stager
	departures departures
	landings   landings
}

// staged is what an exchange with tensors of an accelerator has beside the others. The goroutine of the departures
// writes it until the requests are sent; then Worker.mu guards it.
type staged struct {
	device tensor.Device
	stream device.Stream
	ready  device.Event // the work before the exchange on stream is over; nil once it was
	step   stagedStep

	own     []tensor.Tensor // of the program, for which memory of the host stands
	region  *tensor.Region  // that memory
	out, in []staging.Move
	pulls   []int // the pull that each of in is for
	direct  direct
	landing int // landings that are not over; Worker.mu guards it
	arrival *arrival
}

// stagedStep is how far a staged exchange is.
type stagedStep uint8

const (
	stepReady   stagedStep = iota // it waits for the stream of the program
	stepCopyOut                   // its pushes are copied out of the accelerator
	stepSent                      // the servers have it, or it waits for room
)

// newStaged notes what the stream of e has to do first.
func newStaged(e *Exchange, at tensor.Device) (*staged, error) {
	driver, err := device.Find(at.Kind)
	if err != nil {
		return nil, err
	}
	s := &staged{device: at, stream: device.Stream{Device: at, Handle: e.Stream.Handle}}
	if s.ready, err = driver.Record(s.stream); err != nil {
		return nil, fmt.Errorf("push_pull: stream %#x of %s: no event can be recorded: %w", s.stream.Handle, at, err)
	}
	for i := range e.Pull {
		if !e.Pull[i].Device().IsHost() {
			s.arrival = newArrival()
			break
		}
	}
	return s, nil
}

// drop ends what newStaged has begun, of an exchange that was refused.
func (s *staged) drop() {
	if s != nil {
		s.closeReady()
	}
}

func (s *staged) closeReady() {
	if s.ready != nil {
		s.ready.Close()
		s.ready = nil
	}
}

// name says which tensor an error is about: the first one of the accelerator.
func (x *activeExchange) stagedName() string {
	for i := range x.push {
		if !x.push[i].Device().IsHost() {
			return fmt.Sprintf("push tensor %d (key %d)", i, x.pushKeys[i])
		}
	}
	for i := range x.pull {
		if !x.pull[i].Device().IsHost() {
			return fmt.Sprintf("pull tensor %d (key %d)", i, x.pullKeys[i])
		}
	}
	return "the exchange"
}

// reserve takes memory of the host for the tensors of the accelerator, and has the devices of the vans reach it.
func (s *staged) reserve(x *activeExchange, w *Worker, giveUp func() error) error {
	n := 0
	for _, list := range s.stoodFor(x) {
		for i := range list {
			if !list[i].Device().IsHost() {
				n += alignUp(list[i].Len())
			}
		}
	}
	if n == 0 {
		return nil
	}
	var err error
	if s.region, err = w.staging.stager.Memory(s.device, n, giveUp); err != nil {
		return err
	}
	whole, err := tensor.FromRegion(s.region, 0, tensor.Uint8, tensor.ShapeOf(int64(n)))
	if err == nil {
		w.link.Registry.Prepare(&whole)
	}
	return err
}

// stagedAlign is the alignment of each tensor in pooled memory. It suits every element type and is a cache line.
const stagedAlign = 64

func alignUp(n int) int { return (n + stagedAlign - 1) &^ (stagedAlign - 1) }

// stoodFor returns the lists of tensors for which memory of the host stands, where an accelerator holds them.
func (s *staged) stoodFor(x *activeExchange) [2][]tensor.Tensor {
	if s.direct.pushes {
		return [2][]tensor.Tensor{nil, x.pull}
	}
	return [2][]tensor.Tensor{x.push, x.pull}
}

// listMoves makes the list of the copies. The tensors of the exchange are still those of the program.
func (s *staged) listMoves(x *activeExchange) {
	var at int
	next := func(t *tensor.Tensor) staging.Move {
		m := staging.Move{Tensor: *t}
		if n := t.Len(); n > 0 {
			m.Host = s.region.Bytes()[at : at+n : at+n]
			at += alignUp(n)
		}
		return m
	}
	pushes := s.stoodFor(x)[0]
	for i := range pushes {
		if t := &pushes[i]; !t.Device().IsHost() {
			s.out = append(s.out, next(t))
		}
	}
	for i := range x.pull {
		if t := &x.pull[i]; !t.Device().IsHost() {
			s.in, s.pulls = append(s.in, next(t)), append(s.pulls, i)
		}
	}
	s.direct.lends, s.direct.onHost = make([]bool, len(s.pulls)), make([]bool, len(s.pulls))
}

// substitute has memory of the host stand for the tensors of the program, which s holds from then on. Under Worker.mu.
func (s *staged) substitute(x *activeExchange) error {
	var at int64
	for _, list := range s.stoodFor(x) {
		for i := range list {
			t := &list[i]
			if t.Device().IsHost() {
				continue
			}
			host, err := s.hostTensor(t, at)
			if err != nil {
				return err
			}
			at += int64(alignUp(t.Len()))
			s.own = append(s.own, *t)
			*t = host
		}
	}
	return nil
}

// hostTensor makes the tensor that stands for t, and holds it.
func (s *staged) hostTensor(t *tensor.Tensor, at int64) (host tensor.Tensor, err error) {
	if t.Len() == 0 {
		return tensor.FromBytes(t.DType(), t.Shape(), nil)
	}
	if host, err = tensor.FromRegion(s.region, at, t.DType(), t.Shape()); err == nil {
		err = host.Retain()
	}
	return host, err
}

// release gives back the memory of the host, and the tensors of the program. Under Worker.mu.
func (s *staged) release(l *lender) {
	for i := range s.own {
		s.own[i].Release()
	}
	s.own = nil
	s.direct.release(l.memory.Registry)
	s.dropCopies(l.pool)
}

// dropCopies gives back the memory of the host.
func (s *staged) dropCopies(pool *tensor.Allocator) {
	s.out, s.in, s.pulls = nil, nil, nil
	if s.region != nil {
		pool.Put(s.region)
		s.region = nil
	}
}

// timeoutError is the error of a wait that ended while x was between an accelerator and the servers. It returns nil
// for other exchanges. Under Worker.mu.
func (d *departures) timeoutError(x *activeExchange, cause error) error {
	s := x.staged
	if x.state == departing && d.list[0] != x {
		return x.lateError(cause, "it is not sent yet, behind an exchange that waits for an accelerator,")
	}
	if s == nil {
		return nil
	}
	switch s.step {
	case stepReady:
		return x.lateError(cause, fmt.Sprintf("%s: stream %#x of %s has not done the work that was queued before the exchange", x.stagedName(), s.stream.Handle, s.device))
	case stepCopyOut:
		return x.lateError(cause, fmt.Sprintf("%s: %s has not copied it to memory of the host", x.stagedName(), s.device))
	}
	if n := d.w.staging.landings.of(x); n != nil && x.pending&unanswered == 0 {
		return x.lateError(cause, fmt.Sprintf("pull tensor %d (key %d): %s has not copied the answer from memory of the host", n.pull, x.pullKeys[n.pull], s.device))
	}
	return nil
}

// lateError is the error of a wait that ended before its exchange.
func (x *activeExchange) lateError(cause error, what string) error {
	text := fmt.Sprintf("%s for %v: wait again, the exchange is not over", what, time.Duration(trace.Now()-x.start).Round(time.Millisecond))
	return &stepvan.OpError{Op: "push_pull", Err: errs.Late(text, cause)}
}

// stagedError says that an accelerator has failed an exchange.
func stagedError(what string, err error) error {
	if errors.As(err, new(*stepvan.OpError)) {
		return err
	}
	return &stepvan.OpError{Op: "push_pull", Err: fmt.Errorf("%s: %w", what, err)}
}
