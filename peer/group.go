package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
)

// Group is some peers that do the same things together, in the same order. One goroutine at a time uses a group. The
// operations wait until all members take part, one of them dies, or the context ends. When a member has left, an
// operation waits 1.5 seconds at most for each letter of the others. Those that it needs are on their way, or may never
// be sent. After an error the members may be at different operations, so the group is over. The same holds after the
// loss of the connection with a member.
type Group struct {
	p      *Peer
	name   string
	ranks  []stepvan.Rank
	series string // what its letters have in common with those of all groups of this name and these ranks
	life   uint64 // which of these groups it is
	index  int    // of this peer in ranks
	broken error  // a member has said that an operation has failed there. Under Peer.mu
	losses []int  // remote.losses of the members when the group was made

	mu sync.Mutex
	// +checklocks:mu
	calls uint64
	// +checklocks:mu
	failed error
}

// Group makes a group of some peers. All of them call it with the same name and the same ranks in the same order, and
// this peer is one of them. Nothing is sent. A group takes the place of an earlier one with the same name and ranks,
// which all of them have given up or do not use any more.
//
// A peer counts the groups of each name and ranks, since the others do so, too. It has at most 65,536 names with their
// ranks, and refuses a further one with [stepvan.ErrInvalid]. Use names again, or call Forget.
func (p *Peer) Group(name string, ranks []stepvan.Rank) (*Group, error) {
	g := &Group{p: p, name: name, ranks: slices.Clone(ranks), losses: make([]int, len(ranks))}
	if len(name) > maxName || name == "" {
		return nil, errs.Invalid("group: name: wrong length (got %d, want 1 to %d bytes): give another", len(name), maxName)
	}
	p.mu.Lock()
	defer p.unlock()
	seen := map[stepvan.Rank]bool{}
	for i, rank := range ranks {
		r, err := p.find("group "+name, rank)
		if err != nil {
			return nil, err
		}
		g.losses[i] = r.losses
		if seen[rank] {
			return nil, errs.Invalid("group %s: peer %d: it is named twice: name each member once", name, rank)
		}
		seen[rank] = true
	}
	if g.index = slices.Index(ranks, p.rank); g.index < 0 {
		return nil, errs.Invalid("group %s: this peer is not a member (rank %d, members %v): call it at the members alone", name, p.rank, ranks)
	}
	g.series = seriesOf(name, ranks)
	if x := &p.letters; x.groups[g.series] == nil && len(x.groups) >= maxSeries {
		return nil, errs.Invalid("group %s: name: this peer has had too many names of groups (got %d, want at most %d): use a name again, or forget groups",
			name, len(x.groups)+1, maxSeries)
	}
	p.letters.replace(g)
	return g, nil
}

// seriesOf names all groups of one name and the same ranks.
func seriesOf(name string, ranks []stepvan.Rank) string {
	h := fnv.New64a()
	for _, rank := range ranks {
		_ = binary.Write(h, binary.LittleEndian, int64(rank))
	}
	return name + "#" + strconv.FormatUint(h.Sum64(), 36)
}

// id names the group to its members. Each of them has made as many groups of that series.
func (g *Group) id() string { return g.series + "." + strconv.FormatUint(g.life, 10) }

// replace puts g in the place of the last group of its series, and drops the letters that were for that one. A member
// may have made g before, and have failed.
func (x *letters) replace(g *Group) {
	last := x.groups[g.series]
	x.groups[g.series] = g
	g.life = 1
	if last != nil {
		g.life = last.life + 1
	}
	for _, rank := range g.ranks {
		b := &x.p.remotes[rank].letters
		if last != nil {
			b.dropGroup(last)
		}
		if why, early := b.failed[g.id()]; early {
			delete(b.failed, g.id())
			x.groupFailed(b.remote, g.id(), why)
		}
	}
}

// Forget drops what this peer remembers of the name and the ranks of the group, which is over. It is for names that no
// member uses again, such as those that are drawn by chance.
func (g *Group) Forget() {
	p := g.p
	p.mu.Lock()
	defer p.unlock()
	if p.letters.groups[g.series] != g {
		return
	}
	delete(p.letters.groups, g.series)
	for _, rank := range g.ranks {
		p.remotes[rank].letters.dropGroup(g)
	}
}

// dropGroup drops the letters for a group that is over.
func (b *letterbox) dropGroup(g *Group) {
	prefix := groupKey + g.id() + ":"
	for key := range b.came {
		for ok := strings.HasPrefix(key, prefix); ok; {
			_, ok = b.take(key)
		}
	}
}

// check implements agreement. A member that has left has done its part of what all others have begun.
func (g *Group) check() error {
	if g.broken != nil {
		return g.broken
	}
	for _, rank := range g.ranks {
		if r := g.p.remotes[rank]; !errors.Is(r.dead, link.ErrLeft) {
			if _, err := g.p.find("group "+g.name, rank); err != nil {
				return err
			}
		}
	}
	return g.checkSessions()
}

// checkSessions returns an error when the connection with a member was lost since the group was made. Letters of that
// member may be lost with it, and nobody sends them again.
func (g *Group) checkSessions() error {
	for i, rank := range g.ranks {
		if r := g.p.remotes[rank]; r.losses != g.losses[i] {
			return r.failure("group "+g.name, fmt.Errorf("%w: the connection was lost since the group was made", stepvan.ErrPeerLost))
		}
	}
	return nil
}

// of implements agreement.
func (g *Group) of() *Group { return g }

// spares implements agreement.
func (g *Group) spares() bool { return true }

// has implements agreement.
func (g *Group) has(rank stepvan.Rank) bool { return slices.Contains(g.ranks, rank) }

// checkLiving returns an error that names the first of some peers that is dead. Under Peer.mu.
func (x *letters) checkLiving(op string, ranks []stepvan.Rank) error {
	for _, rank := range ranks {
		if _, err := x.p.find(op, rank); err != nil {
			return err
		}
	}
	return nil
}

// groupFailed is the beginning of the key of the letter that tells the members that an operation has failed.
const groupFailed = "!"

// groupKey is the beginning of the keys of the other letters of groups, and of the names of their plans.
const groupKey = "g:"

// maxFailed bounds the groups of a peer that have failed there, and that this peer does not have yet.
const maxFailed = 1024

// groupFailed ends the waits of a group because an operation has failed at a member. Under Peer.mu.
func (x *letters) groupFailed(r *remote, id, why string) {
	at := max(0, strings.LastIndexByte(id, '.'))
	g, life := x.groups[id[:at]], uint64(0)
	if at > 0 {
		life, _ = strconv.ParseUint(id[at+1:], 10, 64)
	}
	if g == nil || g.life < life {
		r.letters.noteFailed(id, why) // for this peer's group, which is to come, or was forgotten
		return
	}
	if g.life != life || !slices.Contains(g.ranks, r.Rank) {
		return
	}
	g.broken = r.failure("group "+g.name, fmt.Errorf("%w: %s", stepvan.ErrRemote, why))
	for w := range x.waits {
		if w.with.of() == g {
			x.wake(w, g.broken)
		}
	}
}

// noteFailed keeps that a group has failed at the peer. One of those that were forgotten here makes room.
func (b *letterbox) noteFailed(id, why string) {
	if len(b.failed) >= maxFailed {
		for other := range b.failed {
			delete(b.failed, other)
			break
		}
	}
	b.failed[id] = why
}

// wakeAll ends the waits of an agreement.
func (x *letters) wakeAll(c agreement, err error) {
	for w := range x.waits {
		if w.with == c {
			x.wake(w, err)
		}
	}
}

// maxSeries bounds the names of groups that a peer has had, each with its ranks.
const maxSeries = 1 << 16

// maxName bounds the names of groups and plans.
const maxName = 256

// Ranks lists the members. The caller must not write to the slice.
func (g *Group) Ranks() []stepvan.Rank { return g.ranks }

// Index is the place of this peer among the members.
func (g *Group) Index() int { return g.index }

// begin starts an operation. Its key is the same at all members.
func (g *Group) begin(op string) (key string, err error) {
	if err := g.brokenBy(); err != nil {
		return "", g.end(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return "", fmt.Errorf("group %s: %s: an operation has failed before: %w", g.name, op, g.failed)
	}
	g.calls++
	return groupKey + g.id() + ":" + op + ":" + strconv.FormatUint(g.calls, 10), nil
}

// brokenBy says which member has failed, and why.
func (g *Group) brokenBy() error {
	g.p.mu.Lock()
	defer g.p.unlock()
	return g.broken
}

// end notes the outcome of an operation.
func (g *Group) end(err error) error {
	if err == nil {
		return nil
	}
	if g.note(err) {
		g.p.mu.Lock()
		defer g.p.unlock()
		for _, rank := range g.ranks {
			if r := g.p.remotes[rank]; !r.self() && r.dead == nil {
				r.letters.post(groupFailed+g.id(), []byte(text.Line(err.Error(), maxText)))
			}
		}
	}
	return err
}

// note keeps the first error, and reports whether this is it.
func (g *Group) note(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return false
	}
	g.failed = err
	return true
}

// op names an operation in errors.
func (g *Group) op(name string) string { return name + " of group " + g.name }

// Barrier waits until all members have called it.
func (g *Group) Barrier(ctx context.Context) error {
	key, err := g.begin("barrier")
	if err != nil {
		return err
	}
	// Each round tells a member twice as far away, which then knows of twice as many.
	n := len(g.ranks)
	for step := 1; step < n; step *= 2 {
		round := key + "." + strconv.Itoa(step)
		if err := g.p.letters.post(g.op("barrier"), round, nil, g.ranks[(g.index+step)%n]); err != nil {
			return g.end(err)
		}
		if _, err := g.p.letters.read(ctx, g, g.op("barrier"), g.ranks[(g.index-step+n)%n], round); err != nil {
			return g.end(err)
		}
	}
	return nil
}

// AllGather gives each member the bytes of all, in the order of the members. They may have any size. mine is not
// written to until all members have returned.
func (g *Group) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	key, err := g.begin("all_gather")
	if err != nil {
		return nil, err
	}
	have, err := g.gather(ctx, "all_gather", key, mine)
	return have, g.end(err)
}

// gather gives each member the bytes of all, for the operation with a key.
func (g *Group) gather(ctx context.Context, op, key string, mine []byte) ([][]byte, error) {
	// After a round a member has those of twice as many members, from its own on.
	n := len(g.ranks)
	have := make([][]byte, n)
	have[g.index] = mine
	for step := 1; step < n; step *= 2 {
		round := key + "." + strconv.Itoa(step)
		count := min(step, n-step)
		if err := g.p.letters.post(g.op(op), round, bundle(have, g.index, count), g.ranks[(g.index-step+n)%n]); err != nil {
			return nil, err
		}
		body, err := g.p.letters.read(ctx, g, g.op(op), g.ranks[(g.index+step)%n], round)
		if err == nil {
			err = g.unbundle(have, (g.index+step)%n, count, body)
		}
		if err != nil {
			return nil, err
		}
	}
	return have, nil
}

// bundle encodes the bytes of so many members from first on.
func bundle(have [][]byte, first, count int) []byte {
	var b []byte
	for i := range count {
		one := have[(first+i)%len(have)]
		b = binary.AppendUvarint(b, uint64(len(one)))
		b = append(b, one...)
	}
	return b
}

// unbundle takes the bytes of so many members from first on.
func (g *Group) unbundle(have [][]byte, first, count int, body []byte) error {
	d := decode(body)
	for i := range count {
		have[(first+i)%len(have)] = d.bytes()
	}
	return d.end()
}
