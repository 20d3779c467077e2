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
	roster  *roster // nil until the pair is open
	failed  bool    // the last attempt has failed
	ignored map[string]uint64
	seen    map[string]uint64 // entries of this attempt that stood
}

type pairKey struct{ pair, side string }

// initPair opens a pair: it publishes what this rank has, and waits until all ranks of both sides have done so.
func (s *session) initPair(ctx context.Context, c *InitPair) error {
	a := s.a
	x, err := s.takePair(c)
	if err != nil {
		return err
	}
	n := x.entry
	if err := a.board.Post(ctx, n.key(), n.encode()); err != nil {
		x.leave(n, err)
		return fmt.Errorf("InitPair: pair %q: %w", c.PairName, err)
	}
	for {
		done, changed, err := x.look()
		if err != nil {
			x.leave(n, err)
			return err
		}
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := fmt.Errorf("InitPair: pair %q: %w", c.PairName, s.late(ctx, x.missing()))
			x.leave(n, err)
			return err
		}
	}
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
		x = &openPair{s: s, ignored: map[string]uint64{}}
		s.pairs[key] = x
	}
	if x.failed {
		x.ignore()
	}
	n.attempt = a.number()
	x.command, x.entry, x.failed, x.seen = c, n, false, map[string]uint64{}
	return x, nil
}

// equal reports whether two entries of one rank say the same.
func (n *rankEntry) equal(o *rankEntry) bool {
	return n.remote == o.remote && n.size == o.size && bytes.Equal(n.mesh, o.mesh) && bytes.Equal(n.placements, o.placements)
}

// ignore has the pair overlook the marks that earlier attempts have left on the board.
func (x *openPair) ignore() {
	for key, n := range x.s.a.entries {
		if n.pair == x.entry.pair && n.state != entryStands {
			x.ignored[key] = n.attempt
		}
	}
}

// look reports whether the pair is open, and otherwise when to look again.
func (x *openPair) look() (done bool, changed <-chan struct{}, err error) {
	a := x.s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := x.s.check(); err != nil {
		return false, nil, err
	}
	r, err := x.assemble()
	if err != nil || r == nil {
		return false, a.changed, err
	}
	if old := a.rosters[r.id]; old != nil {
		r = old
	}
	a.rosters[r.id] = r
	x.roster = r
	return true, nil, nil
}

// assemble makes the roster of what is on the board. Under mu.
func (x *openPair) assemble() (*roster, error) {
	a := x.s.a
	mine := x.entry
	all := []rankEntry{}
	posted := false
	for key, n := range a.entries {
		switch at, ok := x.ignored[key]; {
		case n.pair != mine.pair || ok && at == n.attempt:
		case key == mine.key():
			posted = n.attempt == mine.attempt
		case n.state == entryGone:
			if at, ok := x.seen[key]; ok && at == n.attempt {
				return nil, &stepvan.OpError{Op: "InitPair: pair " + mine.pair, Peer: n.String(), Err: fmt.Errorf("its client has ended: %w", stepvan.ErrPeerLost)}
			}
		default:
			if n.state == entryStands {
				x.seen[key] = n.attempt
			}
			all = append(all, n)
		}
	}
	if err := x.checkLiving(); err != nil {
		return nil, err
	}
	r, err := makeRoster(&mine, append(all, mine))
	if !posted && err == nil {
		return nil, nil // the others do not see this rank yet
	}
	return r, err
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
		if n.pair == x.entry.pair && n.state == entryStands {
			count[n.side]++
			size[n.side] = fmt.Sprint(n.size)
		}
	}
	return fmt.Sprintf("of %s there are %d of %s ranks, and of %s %d of %s", x.entry.side, count[x.entry.side], size[x.entry.side],
		x.entry.remote, count[x.entry.remote], size[x.entry.remote])
}

// leave ends an attempt that has failed. When the ranks do not agree, all of them fail. A mark on the board then tells
// those that come late, for a while.
func (x *openPair) leave(n rankEntry, why error) {
	a := x.s.a
	marked := errors.Is(why, stepvan.ErrInvalid)
	a.mu.Lock()
	x.failed, x.roster = true, nil
	ended := x.s.ended // then its end is on the board
	for key, other := range a.entries {
		if marked && other.pair == n.pair && key != n.key() {
			x.ignored[key] = other.attempt
		}
	}
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

// brief is the context of an operation of the board that nobody waits for.
func (a *Agent) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.ctx, defaultPatience)
}

// post replaces an entry, and takes it off the board a while later.
func (a *Agent) post(n rankEntry) {
	ctx, cancel := a.brief()
	defer cancel()
	if a.board.Post(ctx, n.key(), n.encode()) != nil {
		return
	}
	time.AfterFunc(markTime, func() {
		if a.owns(n) {
			ctx, cancel := a.brief()
			defer cancel()
			_ = a.board.Remove(ctx, n.key())
		}
	})
}

// markTime is how long a mark stays on the board.
const markTime = 5 * time.Second

// owns reports whether the entry on the board is still this one.
func (a *Agent) owns(n rankEntry) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, ok := a.entries[n.key()]
	return ok && now.attempt == n.attempt && now.state == n.state
}
