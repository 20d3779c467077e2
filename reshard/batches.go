package reshard

import (
	"cmp"
	"slices"

	"github.com/stepvan/stepvan"
)

// load is how many bytes a rank sends and receives.
type load struct{ sends, recvs int64 }

// filling is the last batch of a rank that has anything, and what it has.
type filling struct {
	batch int32
	load
}

// fill gives each parameter a batch, in the order of the schedule. A parameter goes to the first batch that is not
// before the last one of any of its ranks, and where all of them have room. So ranks with different parameters, such as
// those of two stages of a pipeline, fill the same batches.
func (p *Planner) fill() {
	wants := p.wants()
	p.batch = make([]int32, len(p.names))
	ranks := make([]filling, len(p.members))
	more := make([]load, len(p.members)) // what a parameter adds
	var touched []int
	for _, w := range wants {
		if len(w) == 0 {
			continue
		}
		touched = p.weigh(w, more, touched[:0])
		last := int32(0)
		for _, m := range touched {
			last = max(last, ranks[m].batch)
		}
		for _, m := range touched {
			r := &ranks[m]
			if r.batch == last && (r.over(r.sends, more[m].sends, p.options.BatchBytes) || r.over(r.recvs, more[m].recvs, p.options.BatchBytes)) {
				last++
				break
			}
		}
		for _, m := range touched {
			r := &ranks[m]
			if r.batch < last {
				*r = filling{batch: last}
			}
			r.sends += more[m].sends
			r.recvs += more[m].recvs
			more[m] = load{}
		}
		p.batch[w[0].name] = last
		p.batches = max(p.batches, int(last)+1)
	}
}

// over reports whether more bytes do not fit. A batch that is empty has room for any parameter.
func (f *filling) over(have, more, most int64) bool { return have > 0 && more > 0 && have > most-more }

// want is a parameter at one of its destinations.
type want struct{ name, member, route int32 }

// wants has the destinations of each parameter, in the order in which the schedule comes to the parameters.
func (p *Planner) wants() [][]want {
	place := make([]int32, len(p.names)) // in the result, and 1
	var all [][]want
	for m := range p.members {
		for i, id := range p.ids[m][1] {
			if place[id] == 0 {
				all = append(all, nil)
				place[id] = int32(len(all))
			}
			at := place[id] - 1
			all[at] = append(all[at], want{id, int32(m), p.chosen[m][i]})
		}
	}
	return all
}

// weigh adds what a parameter costs its ranks to more, and appends their numbers to touched.
func (p *Planner) weigh(destinations []want, more []load, touched []int) []int {
	add := func(m int, l load) {
		if more[m] == (load{}) {
			touched = append(touched, m)
		}
		more[m].sends += l.sends
		more[m].recvs += l.recvs
	}
	for _, w := range destinations {
		r := p.routes[w.route]
		for _, s := range p.shares(r) {
			add(s.member, load{sends: s.bytes})
			add(int(w.member), load{recvs: s.bytes})
		}
	}
	return touched
}

// share is what one source sends of a route.
type share struct {
	member int
	bytes  int64
}

// shares are the bytes of each source of a route.
func (p *Planner) shares(r *route) []share {
	if r.shares != nil {
		return r.shares
	}
	for i := range r.moves.Len() {
		v := r.moves.At(i)
		n := int64(r.wire.Size())
		for _, extent := range v.Extent[:v.Rank] {
			n *= extent
		}
		m, _ := p.member(v.Source)
		at := slices.IndexFunc(r.shares, func(s share) bool { return s.member == m })
		if at < 0 {
			at = len(r.shares)
			r.shares = append(r.shares, share{member: m})
		}
		r.shares[at].bytes += n
	}
	return r.shares
}

// member is the number of a rank.
func (p *Planner) member(r stepvan.Rank) (int, bool) {
	return slices.BinarySearchFunc(p.members, r, func(c *contents, r stepvan.Rank) int { return cmp.Compare(c.rank, r) })
}
