package postoffice

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// Board is where the nodes of a cluster post small entries, so that programs that were started apart find each other.
// The scheduler keeps it. An entry lives until its node removes it, leaves or dies. Each Office has a Board, and so has
// the Scheduler. Any goroutine may call its methods.
type Board struct {
	engine *progress.Engine
	keeper func() string // the name of the scheduler, for messages
	send   func(frame)   // to the scheduler, in order
	broken func(error)   // a message of the scheduler cannot be understood

	mu    sync.Mutex
	last  uint64 // request ids, never reused
	open  map[uint64]*boardCall
	ended error // no call can succeed any more, or not yet
}

// boardCall is a call of this node that waits for the scheduler.
type boardCall struct {
	what    string // for errors
	request uint64
	watches bool // and so gets pieces
	ev      progress.Event
	piece   *frame // that nobody has looked at yet
	done    bool
	err     error // once done
}

func newBoard(e *progress.Engine) *Board {
	return &Board{engine: e, open: map[uint64]*boardCall{}, keeper: func() string { return "scheduler" }, broken: func(error) {}}
}

// Post puts an entry on the board, or replaces the value of an entry of this node. It returns when the scheduler has
// done so. The key is printable text of at most [MaxKey] bytes, and the value has at most [MaxValue] bytes. A node may
// have 1,024 entries of 1 MiB together.
//
// Errors:
//   - [stepvan.ErrInvalid], at once: the key or the value is too long, or this node has not joined the cluster;
//   - [stepvan.ErrRemote]: the key belongs to another node, which the error names, or a limit is reached;
//   - [stepvan.ErrPeerLost]: the scheduler was lost;
//   - the error of ctx. The entry may be on the board all the same;
//   - [stepvan.ErrClosed] after Stop.
func (b *Board) Post(ctx context.Context, key string, value []byte) error {
	what := "post " + strconv.Quote(key)
	body := postBody{Key: key, Value: value}
	if err := body.check(); err != nil {
		return errs.Invalid("%.80s: %v", what, err)
	}
	return b.ask(ctx, what, opPost, body)
}

// Remove takes an entry of this node off the board. It returns the errors of Post, and [stepvan.ErrRemote] also when
// there is no such entry.
func (b *Board) Remove(ctx context.Context, key string) error {
	return b.remove(ctx, removeBody{Key: key})
}

// RemoveValue is Remove for an entry that still has a value. When this node has posted another one meanwhile, the entry
// stays, and the error is [stepvan.ErrRemote].
func (b *Board) RemoveValue(ctx context.Context, key string, value []byte) error {
	only := append([]byte{}, value...) // nil would stand for any value
	return b.remove(ctx, removeBody{Key: key, Only: &only})
}

func (b *Board) remove(ctx context.Context, body removeBody) error {
	what := "remove " + strconv.Quote(body.Key)
	if err := body.check(); err != nil {
		return errs.Invalid("%.80s: %v", what, err)
	}
	return b.ask(ctx, what, opRemove, body)
}

// Watch calls until with all entries whose keys begin with prefix, in their order, and again after each change. It
// returns the entries for which until returns true. Each list is the board as it was at one moment at the scheduler.
// Changes that follow each other quickly may come together. Without until it returns the first list. A node may have
// 64 watches at a time.
//
// It returns the errors of Post. The death of a node that has no part in the watch does not end it.
func (b *Board) Watch(ctx context.Context, prefix string, until func([]Entry) bool) ([]Entry, error) {
	what, begun := "watch "+strconv.Quote(prefix), time.Now()
	body := watchBody{Prefix: prefix}
	if err := body.check(); err != nil {
		return nil, errs.Invalid("%.80s: %v", what, err)
	}
	c, err := b.begin(what, true)
	if err != nil {
		return nil, err
	}
	defer b.end(c)
	b.send(encode(opWatch, c.request, body))
	known := watched{prefix: prefix, entries: map[string]Entry{}}
	for ctx.Err() == nil {
		f, err := b.next(ctx, c)
		if err != nil {
			return nil, inOperation(what, err)
		}
		if err := known.take(f); err != nil {
			b.broken(err)
			return nil, inOperation(what, err)
		}
		if !known.more {
			if list := known.list(); until == nil || until(list) {
				return list, nil
			}
		}
		b.send(frame{op: opNext, request: c.request})
	}
	return nil, inOperation(what, errs.GaveUp(time.Since(begun), ctx.Err()))
}

// ask sends a request and waits for its answer.
func (b *Board) ask(ctx context.Context, what string, o op, body any) error {
	if err := ctx.Err(); err != nil {
		return inOperation(what, errs.GaveUp(0, err))
	}
	c, err := b.begin(what, false)
	if err != nil {
		return err
	}
	defer b.end(c)
	b.send(encode(o, c.request, body))
	late := b.engine.Wait(ctx, &c.ev)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.done {
		return inOperation(what, c.err)
	}
	return inOperation(what, late)
}

// inOperation is err as the error of a call, unless it is one already.
func inOperation(what string, err error) error {
	var op *stepvan.OpError
	if err == nil || errors.As(err, &op) || errors.Is(err, stepvan.ErrInvalid) {
		return err
	}
	return &stepvan.OpError{Op: what, Err: err}
}

func (b *Board) begin(what string, watches bool) (*boardCall, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return nil, b.ended
	}
	b.last++
	c := &boardCall{what: what, request: b.last, watches: watches}
	b.open[c.request] = c
	return c, nil
}

// end forgets a call. The scheduler forgets a watch.
func (b *Board) end(c *boardCall) {
	b.mu.Lock()
	delete(b.open, c.request)
	b.mu.Unlock()
	if c.watches {
		b.send(frame{op: opUnwatch, request: c.request})
	}
}

// next waits for the next piece of a watch.
func (b *Board) next(ctx context.Context, c *boardCall) (frame, error) {
	late := b.engine.Wait(ctx, &c.ev)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.done:
		return frame{}, c.err
	case c.piece == nil:
		return frame{}, late
	}
	f := *c.piece
	c.piece = nil
	c.ev.Reset()
	return f, nil
}

// deliver takes an answer of the scheduler. Its error is the scheduler's mistake.
func (b *Board) deliver(f frame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.open[f.request]
	switch {
	case c == nil || c.done: // it was given up
		return nil
	case f.op == opNotPosted:
		return receive(f, func(why *failure) error {
			b.finish(c, why.err(c.what, b.keeper()))
			return nil
		})
	case c.watches != (f.op == opBoard) || c.piece != nil:
		return malformed(f.op, "not expected")
	case f.op == opPosted:
		b.finish(c, nil)
		return nil
	}
	c.piece = &f
	b.engine.Set(&c.ev)
	return nil
}

// finish ends a call. Under the lock only.
func (b *Board) finish(c *boardCall, err error) {
	if !c.done {
		c.done, c.err = true, err
		b.engine.Set(&c.ev)
	}
}

// join lets calls begin.
func (b *Board) join() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.ended, errNotJoined) {
		b.ended = nil
	}
}

// fail ends all calls, and those to come, with err. The first one counts.
func (b *Board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == nil || errors.Is(b.ended, errNotJoined) {
		b.ended = err
	}
	for _, c := range b.open {
		b.finish(c, b.ended)
	}
}

// errNotJoined ends the calls of an office that has not joined its cluster.
var errNotJoined = errs.Invalid("board: this node has not joined the cluster: join it first")
