package bus

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// collection is what the ranks of a pair register in a batch, at the leader of the pair. Agent.mu guards it.
type collection struct {
	key      collectionKey
	arrivals map[int]*arrival // by index in roster.all
	token    uint64           // once everything fits
	unready  map[stepvan.Rank]bool
}

type collectionKey struct {
	batch, pair string
	roster      uint64
}

// arrival is what a rank registers.
type arrival struct {
	from    stepvan.Rank
	attempt uint64
	forms   []form
}

// maxCollections bounds what other agents may have a leader keep.
const maxCollections = 1 << 16

// names reports whether a rank of the agent has registered.
func (c *collection) names(agent stepvan.Rank) bool {
	for _, x := range c.arrivals {
		if x.from == agent {
			return true
		}
	}
	return false
}

// lead handles a letter to the leader of a pair. Under mu.
func (a *Agent) lead(from stepvan.Rank, l *letter) {
	key := collectionKey{l.batch, l.pair, l.roster}
	c := a.collections[key]
	switch l.kind {
	case letterRegister:
		if c == nil && len(a.collections) < maxCollections {
			c = &collection{key: key, arrivals: map[int]*arrival{}}
			a.collections[key] = c
		}
		if c == nil || c.token != 0 {
			a.refuse(from, l, errs.Invalid("RegisterTensors: batch %q: pair %q: its ranks have registered it already: use another batch_id", l.batch, l.pair))
			return
		}
		c.arrivals[l.member] = &arrival{from, l.attempt, l.forms}
		c.checkRefusals(a, l.member)
		if r := a.rosters[l.roster]; r != nil && len(c.arrivals) == len(r.all) {
			c.decide(a, r)
		}
		a.checkRosters(c)
	case letterWithdraw:
		switch x := c.arrival(l); {
		case x == nil:
		case a.knows(dismissal{key, l.failure.id}): // of ranks that have failed before, and may register again
			if delete(c.arrivals, l.member); len(c.arrivals) == 0 {
				delete(a.collections, key)
			}
		default:
			a.dismiss(c, c.missing(a, l))
		}
	case letterRefused:
		key.refuse(a, from, l)
	case letterReady:
		if c == nil || c.token == 0 || c.token != l.token {
			return
		}
		if delete(c.unready, from); len(c.unready) == 0 {
			delete(a.collections, key)
			for _, to := range a.rosters[l.roster].agents() {
				a.send(to, &letter{kind: letterGo, batch: l.batch, pair: l.pair, roster: l.roster, token: c.token})
			}
		}
	}
}

// arrival returns the registration that a letter is about.
func (c *collection) arrival(l *letter) *arrival {
	if c == nil {
		return nil
	}
	if x := c.arrivals[l.member]; x != nil && x.attempt == l.attempt {
		return x
	}
	return nil
}

// refuse tells one rank that it cannot register.
func (a *Agent) refuse(to stepvan.Rank, l *letter, err error) {
	a.send(to, &letter{kind: letterFailed, batch: l.batch, pair: l.pair, roster: l.roster, member: l.member, attempt: l.attempt, failure: failureOf(err)})
}

// dismissal is a failure that has ended a collection.
type dismissal struct {
	key collectionKey
	id  uint64
}

// maxDismissals is how many failures a leader remembers.
const maxDismissals = 1024

// knows reports whether a failure has ended the collection of some ranks already, and remembers it. A rank may hear of
// it late, when others register the batch again. Under mu.
func (a *Agent) knows(d dismissal) bool {
	if d.id == 0 || slices.Contains(a.dismissals, d) {
		return d.id != 0
	}
	if a.dismissals = append(a.dismissals, d); len(a.dismissals) > maxDismissals {
		a.dismissals = a.dismissals[1:]
	}
	return false
}

// dismiss fails a collection: all ranks that have registered get the error.
func (a *Agent) dismiss(c *collection, err error) {
	if a.collections[c.key] == c {
		delete(a.collections, c.key)
	}
	err = mark(err)
	for member, x := range c.arrivals {
		a.send(x.from, &letter{
			kind: letterFailed, batch: c.key.batch, pair: c.key.pair, roster: c.key.roster, member: member, attempt: x.attempt,
			token: c.token, failure: failureOf(err),
		})
	}
}

// missing says why a rank has given up, and which ranks have not registered.
func (c *collection) missing(a *Agent, l *letter) error {
	why := l.failure.err()
	r := a.rosters[c.key.roster]
	if r == nil {
		return fmt.Errorf("RegisterTensors: batch %q: pair %q: %w", l.batch, l.pair, why)
	}
	var list []int
	for i := range r.all {
		if c.arrivals[i] == nil {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("RegisterTensors: batch %q: pair %q: %s gave up: %w", l.batch, l.pair, r.name(l.member), why)
	}
	return fmt.Errorf("RegisterTensors: batch %q: pair %q: these ranks have not registered: %s: %w", l.batch, l.pair, r.names(list), why)
}

// checkRosters fails registrations that name different ranks of one pair. Some of them have opened the pair again, and
// others have not.
func (a *Agent) checkRosters(c *collection) {
	for key, other := range a.collections {
		if key != c.key && key.batch == c.key.batch && key.pair == c.key.pair && other.token == 0 {
			err := errs.Invalid("RegisterTensors: batch %q: pair %q: its ranks do not name the same partners: send InitPair again at all ranks", key.batch, key.pair)
			a.dismiss(other, err)
			a.dismiss(c, err)
			return
		}
	}
}

// decide has a goroutine compare what all ranks have registered, and tell them. Under mu.
func (c *collection) decide(a *Agent, r *roster) {
	for i, x := range c.arrivals {
		if i >= len(r.all) || r.all[i].agent != x.from {
			a.opt.Log.Error().Int("peer", int(x.from)).Str("pair", r.pair).Msg("an agent registers tensors of a rank that is not its own")
			delete(c.arrivals, i)
			return
		}
	}
	c.token = a.number() // what comes for this collection from here on is refused
	a.spawn(func() {
		forms, err := c.compare(r)
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case a.collections[c.key] != c: // a rank has given up
		case err != nil:
			a.dismiss(c, fmt.Errorf("RegisterTensors: batch %q: pair %q: %w", c.key.batch, c.key.pair, err))
		default:
			c.announce(a, r, forms)
		}
	})
}

// announce tells all agents that everything fits.
func (c *collection) announce(a *Agent, r *roster, forms []form) {
	c.unready = map[stepvan.Rank]bool{}
	l := &letter{kind: letterFits, batch: c.key.batch, pair: c.key.pair, roster: c.key.roster, token: c.token, forms: forms}
	for i := range r.all {
		l.attempts = append(l.attempts, c.arrivals[i].attempt)
	}
	for _, to := range r.agents() {
		c.unready[to] = true
		a.send(to, l)
	}
}

// compare checks that all ranks have the same tensors. It returns the types at both sides, and the shapes: of the whole
// tensors, or for each rank of a side those of its own.
func (c *collection) compare(r *roster) (forms []form, err error) {
	count := len(c.arrivals[0].forms)
	for i := range r.all {
		if n := len(c.arrivals[i].forms); n != count {
			return nil, errs.Invalid("the ranks differ in the number of tensors (%s has %d, %s has %d): register the same tensors at all, in one order",
				r.name(0), count, r.name(i), n)
		}
	}
	known := map[string]form{}
	for k := range count {
		key := c.describe(r, k)
		f, ok := known[key]
		if !ok {
			if f, err = c.compareOne(r, k); err != nil {
				return nil, fmt.Errorf("tensor %d: %w", k, err)
			}
			known[key] = f
		}
		forms = append(forms, f)
	}
	return forms, nil
}

// describe is a text that is the same for tensors with the same types and shapes at all ranks.
func (c *collection) describe(r *roster, k int) string {
	var b []byte
	for i := range r.all {
		f := &c.arrivals[i].forms[k]
		b = append(b, byte(f.types[0]), byte(f.shape.Rank()))
		for _, n := range f.shape.Dims() {
			b = fmt.Appendf(b, "%x,", n)
		}
	}
	return string(b)
}

// compareOne compares one tensor.
func (c *collection) compareOne(r *roster, k int) (f form, err error) {
	var shapes [2][]tensor.Shape
	for i := range r.all {
		m, x := &r.all[i], &c.arrivals[i].forms[k]
		first := r.sides[m.side].first
		if t := &c.arrivals[first].forms[k]; t.types[0] != x.types[0] {
			return f, errs.Invalid("the ranks of one side differ in type (%s has %s, %s has %s): give all the same", r.name(first), t, r.name(i), x)
		}
		f.types[m.side] = x.types[0]
		shapes[m.side] = append(shapes[m.side], x.shape)
	}
	if err := r.checkTypes(&f); err != nil {
		return f, err
	}
	if r.sides[0].layout == nil {
		for i, s := range shapes[0] {
			if s != shapes[1][i] {
				return f, errs.Invalid("the sides differ in size (%s has %s, %s has %s): give both ranks tensors of one shape",
					r.name(i), s, r.name(r.sides[1].first+i), shapes[1][i])
			}
		}
		return f, nil
	}
	var wholes [2]tensor.Shape
	for i := range r.sides {
		if wholes[i], err = wholeShape(*r.sides[i].layout, shapes[i]); err != nil {
			return f, fmt.Errorf("%s: %w", r.sides[i].name, err)
		}
	}
	if wholes[0] != wholes[1] {
		return f, errs.Invalid("the sides differ in size (%s has parts of %s, %s has parts of %s): give both parts of one tensor",
			r.name(0), wholes[0], r.name(r.sides[1].first), wholes[1])
	}
	f.shape = wholes[0]
	return f, nil
}

// checkTypes checks that the elements of each side can become those of the other, where they move.
func (r *roster) checkTypes(f *form) error {
	for d := range r.sides {
		if !r.sides[1-d].targetable() {
			continue
		}
		_, err := wireType(f.types[d], f.types[1-d])
		if l := r.sides[d].layout; l != nil {
			err = cmp.Or(err, checkReduction(l, f.types[d]))
		}
		if err != nil {
			return fmt.Errorf("from %s to %s: %w", r.name(r.sides[d].first), r.name(r.sides[1-d].first), err)
		}
	}
	return nil
}

// String reads "float32[2 3]".
func (f *form) String() string { return f.types[0].String() + f.shape.String() }
