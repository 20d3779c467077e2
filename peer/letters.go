package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/text"
)

// letterbox has what a peer has sent for groups and plans: bytes of any size, under a key. Letters with one key are
// read in order. Peer.mu guards it.
type letterbox struct {
	remote  *remote
	came    map[string][][]byte
	count   int
	bytes   int
	waiting map[string]*letterWait
	failed  map[string]string // groups of the peer that have failed there before they were made here, and why
}

// letters are what this peer agrees on with others by way of letters. Peer.mu guards it.
type letters struct {
	p        *Peer
	waits    map[*letterWait]struct{}
	groups   map[string]*Group // the latest of each series
	attempts uint64            // to make a plan
}

// letterWait is a goroutine that waits for a letter. It gives up when one of some peers is lost.
type letterWait struct {
	event progress.Event
	err   error
	with  agreement
}

// agreement is what some peers agree on. Its methods are called under Peer.mu.
type agreement interface {
	// check returns why the agreement cannot come about any more, or nil.
	check() error
	// has reports whether the agreement needs a peer.
	has(rank stepvan.Rank) bool
	// of is the group whose operation this is a part of, or nil. When the group fails, so does the agreement.
	of() *Group
	// spares reports whether the agreement may come about although a peer that it needs has left.
	spares() bool
}

const (
	maxKey = 512
	// maxLetters and maxLetterBytes bound what a peer may send before this side reads it.
	maxLetters     = 1 << 16
	maxLetterBytes = 1 << 30
)

func (b *letterbox) init(r *remote) {
	b.remote, b.came, b.waiting = r, map[string][][]byte{}, map[string]*letterWait{}
	b.failed = map[string]string{}
}

// post sends a letter. body is borrowed until it has arrived, so nobody writes to it. Under Peer.mu.
func (b *letterbox) post(key string, body []byte) {
	r := b.remote
	if r.self() {
		b.keep(key, body)
		return
	}
	m := r.message(opLetter, 0)
	m.out.Channel = link.ChannelPeerBulk
	m.meta = append(m.meta, key...)
	if len(body) > 0 {
		m.list = append(m.list, body)
	}
	r.send(m)
}

// letter takes a letter of the peer.
func (b *letterbox) letter(m *link.Inbound) error {
	n := int(m.Header.Total)
	if len(m.Meta) == 0 || len(m.Meta) > maxKey {
		return errs.Protocol("meta", 76, "a letter with a key of %d bytes", len(m.Meta))
	}
	if name, ok := strings.CutPrefix(string(m.Meta), groupFailed); ok && n <= maxText {
		b.remote.peer.letters.groupFailed(b.remote, name, text.Line(string(m.Payload), maxText))
		return nil
	}
	if name, ok := strings.CutPrefix(string(m.Meta), planKey); ok {
		if l := readLetter(m.Payload); l.rejects() {
			if pl := b.remote.peer.plans[name]; pl != nil {
				pl.noteRejection(b.remote, &l)
			} else {
				b.dropAttempt(string(m.Meta), l.from)
			}
			return nil
		}
	}
	if b.count == maxLetters || b.bytes > maxLetterBytes-n {
		return errs.Protocol("total", 88, "%d letters with %d bytes wait, and %d bytes more", b.count, b.bytes, n)
	}
	b.keep(string(m.Meta), append([]byte(nil), m.Payload...))
	return nil
}

// keep has a letter wait until it is read.
func (b *letterbox) keep(key string, body []byte) {
	b.came[key] = append(b.came[key], body)
	b.count++
	b.bytes += len(body)
	if w := b.waiting[key]; w != nil {
		delete(b.waiting, key)
		b.remote.peer.letters.wake(w, nil)
	}
}

// wake ends a wait for a letter, if nothing has ended it yet.
func (x *letters) wake(w *letterWait, err error) {
	if _, waits := x.waits[w]; !waits {
		return
	}
	w.err = err
	delete(x.waits, w)
	x.p.link.Engine().Set(&w.event)
}

// take reads the first letter with a key, if one is there.
func (b *letterbox) take(key string) (body []byte, ok bool) {
	list := b.came[key]
	if len(list) == 0 {
		return nil, false
	}
	body, list[0] = list[0], nil
	if b.came[key] = list[1:]; len(list) == 1 {
		delete(b.came, key)
	}
	b.count--
	b.bytes -= len(body)
	return body, true
}

// fail ends all waits: the letters may never come. A peer that has left has sent all its letters. So they are still
// read, and a group continues for a while that waits for letters of others.
func (b *letterbox) fail(cause error) {
	left := errors.Is(cause, link.ErrLeft)
	if !left {
		clear(b.came)
		clear(b.failed)
		b.count, b.bytes = 0, 0
	}
	for key, w := range b.waiting {
		delete(b.waiting, key)
		b.remote.peer.letters.wake(w, cause)
	}
	for w := range b.remote.peer.letters.waits {
		switch {
		case !w.with.has(b.remote.Rank):
		case left && w.with.spares():
			b.remote.peer.letters.wakeSoon(w, cause)
		default:
			b.remote.peer.letters.wake(w, cause)
		}
	}
}

// lateTime is how long the letters of others may take after a member of a group has left.
const lateTime = 1500 * time.Millisecond

// wakeSoon ends a wait of a group, a member of which has left. If that member had done its part, so had all others, and
// their letters are on their way. Otherwise they may never come.
func (x *letters) wakeSoon(w *letterWait, cause error) {
	time.AfterFunc(lateTime, func() {
		defer x.p.opt.Recover()
		x.p.mu.Lock()
		defer x.p.unlock()
		x.wake(w, cause)
	})
}

// checkSize refuses a letter that would not arrive.
func (x *letters) checkSize(op string, n int) error {
	if most := min(x.p.link.Limits().Message, maxLetterBytes); uint64(n) > most {
		return errs.Invalid("%s: %d bytes for one peer: too many (want at most %d): give fewer at once", op, n, most)
	}
	return nil
}

// post sends a letter to each of the ranks.
func (x *letters) post(op, key string, body []byte, ranks ...stepvan.Rank) error {
	p := x.p
	p.mu.Lock()
	defer p.unlock()
	for _, rank := range ranks {
		r, err := p.find(op, rank)
		if err == nil {
			err = x.checkSize(op, len(body))
		}
		if err != nil {
			return err
		}
		r.letters.post(key, body)
	}
	return nil
}

// read waits for a letter of a member of c. It fails when any member is lost, or c fails otherwise.
func (x *letters) read(ctx context.Context, c agreement, op string, from stepvan.Rank, key string) ([]byte, error) {
	for {
		body, w, err := x.tryRead(c, op, from, key)
		if w == nil {
			return body, err
		}
		if err = x.p.link.Engine().Wait(ctx, &w.event); err == nil {
			err = w.err
		}
		if err != nil {
			return nil, x.giveUp(c, op, from, key, w, err)
		}
	}
}

// tryRead reads a letter that is there, or registers a wait for it.
func (x *letters) tryRead(c agreement, op string, from stepvan.Rank, key string) ([]byte, *letterWait, error) {
	p := x.p
	p.mu.Lock()
	defer p.unlock()
	b := &p.remotes[from].letters
	if !c.spares() { // what follows a rejection belongs to the next attempt
		if err := c.check(); err != nil {
			return nil, nil, err
		}
	}
	if body, ok := b.take(key); ok {
		return body, nil, nil
	}
	r, err := p.find(op, from)
	if err != nil {
		return nil, nil, err
	}
	if b.waiting[key] != nil {
		return nil, nil, fmt.Errorf("%s: another goroutine waits for the same of %s: %w", op, r.Name, stepvan.ErrBusy)
	}
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	w := &letterWait{with: c}
	b.waiting[key] = w
	x.waits[w] = struct{}{}
	for _, member := range p.remotes {
		if left := cmp.Or(member.dead, member.broke); errors.Is(left, link.ErrLeft) && c.has(member.Rank) {
			x.wakeSoon(w, member.failure(op, left))
			break
		}
	}
	r.connect(false) // a peer that cannot be reached shall not be waited for
	return nil, w, nil
}

// giveUp ends a wait for a letter.
func (x *letters) giveUp(c agreement, op string, from stepvan.Rank, key string, w *letterWait, err error) error {
	p := x.p
	p.mu.Lock()
	defer p.unlock()
	r := p.remotes[from]
	if r.letters.waiting[key] == w {
		delete(r.letters.waiting, key)
	}
	delete(x.waits, w)
	if err := c.check(); err != nil {
		return err
	}
	if w.err != nil {
		return errs.Ended(op, w.err)
	}
	return &stepvan.OpError{Op: op, Peer: r.Name, Err: errs.Late("it did not take part in time: call the same there, with the same name", err)}
}
