package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// batch is a batch at a client. Agent.mu guards it.
type batch struct {
	s     *session
	key   batchKey
	parts []*place
	ready bool // it is registered
}

type batchKey struct{ id, role string }

// place is what a client has of a leg.
type place struct {
	leg     *leg
	member  int // index in roster.all
	attempt uint64
	batch   *batch
	views   []tensor.Strided // retained until the leg is closed
	left    bool
}

// register makes a batch ready: it tells the leaders of all pairs what this rank has, and makes plans once everything
// fits. After an error nothing is left of it.
func (s *session) register(ctx context.Context, c *RegisterTensors, role string) error {
	b, err := s.enter(c, role)
	if err != nil {
		return fmt.Errorf("RegisterTensors: batch %q: %w", c.BatchID, err)
	}
	if err := s.awaitReady(ctx, b); err != nil {
		short, cancel := context.WithTimeout(context.Background(), defaultPatience)
		defer cancel()
		_ = b.end(short, err, everybody)
		return err
	}
	return nil
}

// enter makes a batch and its places, and sends the registrations. After an error nothing has changed, and the leaders
// of the pairs know of it.
func (s *session) enter(c *RegisterTensors, role string) (*batch, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	b, err := c.makeBatch(s, role)
	if err != nil {
		c.tellRefused(s, role, err)
	}
	return b, err
}

// makeBatch makes a batch and its places, and sends the registrations. Under mu.
func (c *RegisterTensors) makeBatch(s *session, role string) (_ *batch, err error) {
	a := s.a
	b := &batch{s: s, key: batchKey{c.BatchID, role}}
	if s.batches[b.key] != nil {
		return nil, errs.Invalid("the batch_id is in use: clean that batch up first, or use another")
	}
	defer func() {
		if err != nil {
			for _, p := range b.parts {
				p.drop()
			}
		}
	}()
	pairs, places := map[string]*openPair{}, map[string]*place{}
	for i, t := range c.Tensors {
		x := pairs[t.PairName]
		if x == nil {
			if x, err = s.pairOf(t.PairName, role); err != nil {
				return nil, err
			}
			pairs[t.PairName] = x
			p := &place{batch: b, member: x.member()}
			places[t.PairName] = p
			b.parts = append(b.parts, p)
		}
		v, err := s.memories.find(t.Handle)
		if err == nil {
			err = v.Retain()
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %d of pair %q: %w", i, t.PairName, err)
		}
		places[t.PairName].views = append(places[t.PairName].views, v)
	}
	for pair, x := range pairs {
		if err := a.checkLeg(legKey{c.BatchID, pair}, x.roster, places[pair].member); err != nil {
			return nil, err
		}
	}
	for pair, x := range pairs {
		a.join(legKey{c.BatchID, pair}, x.roster, places[pair])
	}
	s.batches[b.key] = b
	return b, nil
}

// member is the place of the pair in its roster.
func (x *openPair) member() int {
	for i, m := range x.roster.all {
		if m.agent == x.s.a.self && m.client == x.s.id && x.roster.sides[m.side].name == x.entry.side {
			return i
		}
	}
	return -1 // not reached: the roster has been made of it
}

// pairOf finds the side of a pair that the client is, or the one that the role names.
func (s *session) pairOf(pair, role string) (*openPair, error) {
	var found *openPair
	for key, x := range s.pairs {
		if key.pair != pair || x.roster == nil || role != "" && key.side != role {
			continue
		}
		if found != nil {
			return nil, errs.Invalid("pair %q: this client is %s and %s of it: name the role", pair, found.entry.side, key.side)
		}
		found = x
	}
	switch {
	case found != nil:
		return found, nil
	case role != "":
		return nil, errs.Invalid("pair %q: this client is not %q of it: send InitPair first", pair, role)
	}
	return nil, errs.Invalid("pair %q: it is not open at this client: send InitPair first", pair)
}

// drop gives the memory of a place back.
func (p *place) drop() {
	for i := range p.views {
		p.views[i].Release()
	}
	p.views = nil
}

// awaitReady waits until all agents have made their plans.
func (s *session) awaitReady(ctx context.Context, b *batch) error {
	for {
		ready, changed, err := b.look()
		if ready || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return b.giveUp(ctx)
		}
	}
}

// look reports whether the batch is ready, or why it never will be.
func (b *batch) look() (ready bool, changed <-chan struct{}, err error) {
	a := b.s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	ready = true
	for _, p := range b.parts {
		if p.leg.failed != nil {
			return false, nil, p.leg.failed
		}
		ready = ready && p.leg.ready
	}
	if err := a.over; err != nil {
		return false, nil, err
	}
	b.ready = ready
	return ready, a.changed, nil
}

// answerTime is how long a leader may take to name the missing ranks.
const answerTime = time.Second

// giveUp ends a registration whose time is up. The leaders of the pairs say which ranks were missing.
func (b *batch) giveUp(ctx context.Context) error {
	a := b.s.a
	late := mark(b.s.late(ctx, "not all ranks have registered"))
	a.mu.Lock()
	for _, p := range b.parts {
		p.leg.withdraw(p, late)
	}
	a.mu.Unlock()
	limit := time.After(answerTime)
	for {
		_, changed, err := b.look()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-limit:
			return fmt.Errorf("RegisterTensors: batch %q: %w", b.key.id, late)
		}
	}
}

// end ends a batch at this client, and waits until nothing uses its memory.
func (b *batch) end(ctx context.Context, why error, tell audience) error {
	a := b.s.a
	a.mu.Lock()
	for _, p := range b.parts {
		p.leg.fail(why, tell)
	}
	a.mu.Unlock()
	for _, p := range b.parts {
		select {
		case <-p.leg.closed:
		case <-ctx.Done():
			return fmt.Errorf("batch %q: %w", b.key.id, errs.Late("other agents still use its memory: clean it up again", ctx.Err()))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range b.parts {
		if !p.left {
			p.left = true
			p.drop()
			p.leg.leave()
		}
	}
	if b.s.batches[b.key] == b {
		delete(b.s.batches, b.key)
	}
	a.wake()
	return nil
}

// cleanup ends a batch on behalf of its client.
func (s *session) cleanup(ctx context.Context, key batchKey) error {
	a := s.a
	a.mu.Lock()
	b := s.batches[key]
	var busy error
	if b != nil {
		busy = b.checkIdle()
	}
	a.mu.Unlock()
	if b == nil || busy != nil {
		return busy
	}
	return b.end(ctx, errs.Closed(fmt.Sprintf("batch %q was cleaned up at peer %d: register it again", key.id, a.self)), nobody)
}

// checkIdle refuses to end a batch while a transfer of it runs. Under mu.
func (b *batch) checkIdle() error {
	for _, p := range b.parts {
		for d := range p.leg.courses {
			c := &p.leg.courses[d]
			if p.leg.failed == nil && c.asked[p.member] > c.done {
				return fmt.Errorf("CleanupBatch: batch %q: round %d has not completed: wait for the transfer first: %w", b.key.id, c.asked[p.member], stepvan.ErrBusy)
			}
		}
	}
	return nil
}
