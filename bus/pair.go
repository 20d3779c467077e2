package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// openPair is the place of a client in a side of a pair. Agent.mu guards it.
type openPair struct {
	s       *session
	command *InitPair
	entry   rankEntry
	roster  *roster           // nil until the pair is open
	failed  bool              // the last attempt has failed
	trial   uint64            // of the next attempt
	seen    map[string]uint64 // entries that stood during this attempt
}

// progress is how far an attempt is.
type progress uint8

const (
	waiting progress = iota
	behind           // others have begun a later trial, and this rank joins it
	opened
)

type pairKey struct{ pair, side string }

// initPair opens a pair: it publishes what this rank has, and waits until all ranks of both sides have done so.
func (s *session) initPair(ctx context.Context, c *InitPair) error {
	x, err := s.takePair(c)
	if err != nil {
		return err
	}
	for at := behind; ; {
		if at == behind {
			if err := x.stand(ctx); err != nil {
				x.leave(err)
				return fmt.Errorf("InitPair: pair %q: %w", c.PairName, err)
			}
		}
		var changed <-chan struct{}
		if at, changed, err = x.look(); err != nil {
			x.leave(err)
			return err
		}
		switch at {
		case opened:
			return nil
		case behind:
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := fmt.Errorf("InitPair: pair %q: %w", c.PairName, s.late(ctx, x.missing()))
			x.leave(err)
			return err
		}
	}
}

// stand posts the entry of this rank. The agent sees it on the board with all that others posted before.
func (x *openPair) stand(ctx context.Context) error {
	a := x.s.a
	a.mu.Lock()
	x.entry.post = a.number()
	n := x.entry
	a.mu.Unlock()
	return a.board.Post(ctx, n.key(), n.encode())
}

// takePair finds or makes the pair for a command.
func (s *session) takePair(c *InitPair) (*openPair, error) {
	a := s.a
	l, err := c.layout()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	key := pairKey{c.PairName, c.LocalName}
	x := s.pairs[key]
	n := rankEntry{
		agent: a.self, client: s.id, pair: c.PairName, side: c.LocalName, remote: c.RemoteName, size: c.ExpectedWorldSize,
		rank: s.rank, mesh: c.MeshShape, placements: c.Placements, layout: l,
	}
	if x != nil && x.roster != nil {
		if !n.equal(&x.entry) {
			return nil, errs.Invalid("InitPair: pair %q: it is open with another layout or partner (got %s of %d ranks with partner %q, want %s of %d ranks with partner %q): use another name",
				c.PairName, n.layoutName(), n.size, n.remote, x.entry.layoutName(), x.entry.size, x.entry.remote)
		}
		x.seen = map[string]uint64{}
		return x, nil
	}
	if x == nil {
		x = &openPair{s: s}
		s.pairs[key] = x
	}
	n.attempt, n.trial = a.number(), x.trial
	x.command, x.entry, x.failed, x.seen = c, n, false, map[string]uint64{}
	return x, nil
}

// equal reports whether two entries of one rank say the same.
func (n *rankEntry) equal(o *rankEntry) bool {
	return n.remote == o.remote && n.size == o.size && bytes.Equal(n.mesh, o.mesh) && bytes.Equal(n.placements, o.placements)
}

// look reports whether the pair is open, and otherwise when to look again.
func (x *openPair) look() (at progress, changed <-chan struct{}, err error) {
	a := x.s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := x.s.check(); err != nil {
		return waiting, nil, err
	}
	if mine, ok := a.entries[x.entry.key()]; !ok || mine.post != x.entry.post {
		return waiting, a.changed, nil // what this agent knows of the board is older than the entry
	}
	r, err := x.assemble()
	switch {
	case err != nil:
		return waiting, nil, err
	case r != nil:
		if old := a.rosters[r.id]; old != nil {
			r = old
		}
		a.rosters[r.id] = r
		x.roster = r
		return opened, nil, nil
	case x.catchUp():
		return behind, nil, nil
	}
	return waiting, a.changed, nil
}

// assemble makes the roster of what is on the board. Only entries of the trial of this rank count. So what is left of
// an earlier trial, at ranks that have not tried again, fails none of those that have. Under mu.
func (x *openPair) assemble() (*roster, error) {
	mine := x.entry
	all := []rankEntry{mine}
	for key, n := range x.s.a.entries {
		switch {
		case n.pair != mine.pair || key == mine.key():
		case n.state == entryGone:
			if at, ok := x.seen[key]; ok && at == n.attempt {
				return nil, &stepvan.OpError{Op: "InitPair: pair " + mine.pair, Peer: n.String(), Err: fmt.Errorf("its client has ended: %w", stepvan.ErrPeerLost)}
			}
		case n.trial == mine.trial:
			if n.state == entryStands {
				x.seen[key] = n.attempt
			}
			all = append(all, n)
		}
	}
	if err := x.checkLiving(); err != nil {
		return nil, err
	}
	return makeRoster(&mine, all)
}

// catchUp has this rank join the newest trial, and reports whether that is another one. Under mu.
func (x *openPair) catchUp() bool {
	before := x.entry.trial
	for _, n := range x.s.a.entries {
		if n.pair == x.entry.pair && n.state != entryGone {
			x.entry.trial = max(x.entry.trial, n.trial)
		}
	}
	return x.entry.trial != before
}

// checkLiving returns an error that names a rank whose agent has died.
func (x *openPair) checkLiving() error {
	a := x.s.a
	for key := range x.seen {
		if _, ok := a.entries[key]; ok {
			continue
		}
		parts := strings.Split(key, "/")
		var rank stepvan.Rank
		if _, err := fmt.Sscanf(parts[len(parts)-1], "%d.", &rank); err == nil && !a.living[rank] {
			return fmt.Errorf("InitPair: pair %q: %w", x.entry.pair, lostError(rank))
		}
	}
	return nil
}

// missing says which ranks are not there.
func (x *openPair) missing() string {
	a := x.s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	count := map[string]int{}
	size := map[string]string{x.entry.side: fmt.Sprint(x.entry.size), x.entry.remote: "an unknown number"}
	for _, n := range a.entries {
		if n.pair == x.entry.pair && n.trial == x.entry.trial && n.state == entryStands {
			count[n.side]++
			size[n.side] = fmt.Sprint(n.size)
		}
	}
	return fmt.Sprintf("of %s there are %d of %s ranks, and of %s %d of %s", x.entry.side, count[x.entry.side], size[x.entry.side],
		x.entry.remote, count[x.entry.remote], size[x.entry.remote])
}

// leave ends an attempt that has failed. When the ranks do not agree, all of them fail. A mark on the board then tells
// those that come late, for a while. The next attempt is of a trial of its own, in which that mark does not count.
func (x *openPair) leave(why error) {
	a := x.s.a
	marked := errors.Is(why, stepvan.ErrInvalid)
	a.mu.Lock()
	x.failed, x.roster = true, nil
	x.trial = x.entry.trial
	if marked || x.othersFailed() {
		x.trial = min(x.trial+1, maxTrial)
	}
	n := x.entry
	ended := x.s.ended // then its end is on the board
	a.mu.Unlock()
	if ended {
		return
	}
	if marked {
		n.state = entryFailed
		a.post(n)
		return
	}
	ctx, cancel := a.brief()
	defer cancel()
	_ = a.board.Remove(ctx, n.key())
}

// othersFailed reports whether others of this trial have failed. Under mu.
func (x *openPair) othersFailed() bool {
	for _, n := range x.s.a.entries {
		if n.pair == x.entry.pair && n.trial == x.entry.trial && n.state == entryFailed {
			return true
		}
	}
	return false
}

// brief is the context of an operation of the board that nobody waits for.
func (a *Agent) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.ctx, defaultPatience)
}

// post replaces an entry, and takes it off the board a while later.
func (a *Agent) post(n rankEntry) {
	ctx, cancel := a.brief()
	defer cancel()
	value := n.encode()
	if a.board.Post(ctx, n.key(), value) != nil {
		return
	}
	time.AfterFunc(markTime, func() {
		ctx, cancel := a.brief()
		defer cancel()
		_ = a.board.RemoveValue(ctx, n.key(), value) // else a later attempt has replaced it
	})
}

// markTime is how long a mark stays on the board.
const markTime = 5 * time.Second
