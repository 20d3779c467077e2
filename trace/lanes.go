package trace

import (
	"cmp"
	"slices"
)

// lane is one thread of a view: requests with one peer that do not overlap.
type lane struct {
	peer    int32
	server  bool // the peer is a server
	index   int  // among the lanes of this peer
	entries []*Entry
	end     int64
}

// lanes spreads entries over as few lanes per peer as there were requests in
// flight with it, ordered by peer. Entries without stamps are left out.
func lanes(entries []Entry) []*lane {
	var all []*lane
	for _, e := range byStart(entries) {
		begin, end, _ := e.span()
		l := freeLane(all, e, begin)
		if l.entries == nil {
			all = append(all, l)
		}
		l.entries, l.end = append(l.entries, e), end
	}
	slices.SortStableFunc(all, func(a, b *lane) int { return cmp.Compare(a.peer, b.peer) })
	return all
}

// freeLane finds the lane of e's peer that is free at the time, or makes one.
func freeLane(all []*lane, e *Entry, at int64) *lane {
	l := &lane{peer: e.Worker}
	if e.Stamps.HasWorker() {
		l.peer, l.server = e.Server, true
	}
	for _, have := range all {
		if have.peer != l.peer || have.server != l.server {
			continue
		}
		if have.end <= at {
			return have
		}
		l.index++
	}
	return l
}

func byStart(entries []Entry) []*Entry {
	var sorted []*Entry
	for i := range entries {
		if _, _, ok := entries[i].span(); ok {
			sorted = append(sorted, &entries[i])
		}
	}
	slices.SortStableFunc(sorted, func(a, b *Entry) int {
		beginA, endA, _ := a.span()
		beginB, endB, _ := b.span()
		return cmp.Or(cmp.Compare(beginA, beginB), cmp.Compare(endA, endB))
	})
	return sorted
}
