package peertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// exchange is a plan in which each member sends a block of columns to each other, and to itself.
type exchange struct {
	m            *member
	members      []int
	src, dst     []int64
	width        int64
	sends, recvs []peer.Move
	plan         Plan
}

func newExchange(m *member, members []int, rows, width int64, from, to where) *exchange {
	n := int64(len(members))
	x := &exchange{m: m, members: members, width: width, src: m.empty(from, rows*width*n), dst: m.empty(to, rows*width*n)}
	for k, r := range members {
		id := func(from, to int) uint64 { return uint64(from*100 + to) }
		x.sends = append(x.sends, peer.Move{ID: id(m.rank, r), Peer: stepvan.Rank(r), View: m.cols(x.src, width*n, int64(k)*width, width)})
		x.recvs = append(x.recvs, peer.Move{ID: id(r, m.rank), Peer: stepvan.Rank(r), View: m.cols(x.dst, width*n, int64(k)*width, width)})
	}
	return x
}

// number is what a member sends with a version, at some place.
func number(version uint64, from, to int, at int64) int64 {
	return int64(version)<<40 + int64(from)<<36 + int64(to)<<32 + at
}

func (x *exchange) write(version uint64) {
	n := int64(len(x.members))
	for i := range x.src {
		row, col := int64(i)/(n*x.width), int64(i)%(n*x.width)
		x.src[i] = number(version, x.m.rank, x.members[col/x.width], row*x.width+col%x.width)
	}
}

// whole reports whether all elements are of a version.
func (x *exchange) whole(version uint64) bool {
	n := int64(len(x.members))
	for i, got := range x.dst {
		row, col := int64(i)/(n*x.width), int64(i)%(n*x.width)
		if got != number(version, x.members[col/x.width], x.m.rank, row*x.width+col%x.width) {
			return false
		}
	}
	return true
}

func (x *exchange) make(name string) {
	var err error
	x.plan, err = x.m.peer.Plan(x.m.ctx, name, x.sends, x.recvs)
	x.m.must(err, "make a plan")
}

// run runs the plan. Whenever the plan says that a version is there, all of it is.
func (x *exchange) run(version uint64) {
	x.write(version)
	h, err := x.plan.Begin(version)
	x.m.must(err, "begin a run")
	if v := x.plan.Version(); v != 0 {
		x.m.want(v == version && x.whole(v), "version %d is served while it comes", v)
	}
	x.m.must(h.Wait(x.m.ctx), "a run")
	poison(x.src)
	x.m.want(x.plan.Version() == version, "version %d is served after a run of version %d", x.plan.Version(), version)
	x.m.want(x.whole(version), "version %d is not whole", version)
	poison(x.dst)
	x.m.waitForAll()
	x.m.want(clean(x.dst), "a run of version %d writes after its end", version)
}

func plans(m *member) {
	for _, from := range places {
		for _, to := range places {
			for k, width := range []int64{1, 50, 2000} {
				x := newExchange(m, []int{0, 1, 2}, 100, width, from, to)
				x.make(fmt.Sprint("exchange ", k))
				for version := range uint64(4) {
					x.run(2*version + 1)
				}
				s := x.plan.Stats()
				m.want(s.Sent == 1600*width && s.Received == s.Sent && s.Local == 800*width, "wrong stats: %+v", s)
				m.want(!m.shares || from != file || s.Viewed == s.Sent+s.Received, "shared memory is not used: %+v", s)
				m.must(x.plan.Close(m.ctx), "close a plan")
				m.waitForAll()
				m.free()
			}
		}
	}
}

func mismatches(m *member) {
	for round, c := range []struct {
		text string
		edit func(x *exchange)
	}{
		{"int64", func(x *exchange) { x.recvs[0].View = x.m.cols(x.m.empty(heap, 99), 9, 0, 9) }},
		{"float32", func(x *exchange) {
			t, err := tensor.FromSlice(make([]float32, 800))
			x.m.must(err, "memory")
			x.recvs[0].View = t.Strided()
		}},
		{"no move of this ID", func(x *exchange) { x.recvs[0].ID = 77 }},
	} {
		x := newExchange(m, []int{0, 1, 2}, 10, 40, heap, heap)
		if m.rank == 1 {
			c.edit(x)
		}
		_, err := m.peer.Plan(m.ctx, "mismatch", x.sends, x.recvs)
		var mismatch *peer.MismatchError
		m.want(err != nil, "round %d: sides that differ make a plan", round)
		if m.rank < 2 {
			m.want(errors.As(err, &mismatch) && strings.Contains(err.Error(), c.text), "round %d: got %v", round, err)
		}
		m.waitForAll()
	}
	for _, rank := range []stepvan.Rank{-1, 99} {
		_, err := m.peer.Plan(m.ctx, "range", []peer.Move{{ID: 1, Peer: rank, View: m.all(make([]int64, 3))}}, nil)
		m.want(errors.Is(err, stepvan.ErrInvalid), "a move to peer %d: got %v", rank, err)
	}
	x := newExchange(m, []int{0, 1, 2}, 10, 40, heap, heap)
	x.make("mismatch")
	_, err := m.peer.Plan(m.ctx, "mismatch", x.sends, x.recvs)
	m.want(errors.Is(err, stepvan.ErrBusy), "a name that is in use: got %v", err)
	x.run(1)
	m.must(x.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}

func versions(m *member) {
	x := m.empty(file, 1<<18)
	one := []peer.Move{{ID: 5, Peer: stepvan.Rank(1 - m.rank), View: m.all(x)}}
	var none []peer.Move
	sends, recvs := one, none
	if m.rank == 1 {
		sends, recvs = none, one
	}
	pl, err := m.peer.Plan(m.ctx, "versions", sends, recvs)
	m.must(err, "make a plan")
	if m.rank == 0 {
		_, err = pl.Begin(0)
		m.want(errors.Is(err, stepvan.ErrInvalid), "a sender begins version 0: got %v", err)
		fill(x, 4)
		h, err := pl.Begin(4)
		m.must(err, "begin")
		_, err = pl.Begin(4)
		m.want(errors.Is(err, stepvan.ErrBusy), "twice at once: got %v", err)
		m.wait(h, nil)
		_, err = pl.Begin(3)
		m.want(errors.Is(err, stepvan.ErrInvalid), "an older version: got %v", err)
	} else {
		_, ok := pl.Offered()
		for ; !ok; _, ok = pl.Offered() {
			m.must(m.ctx.Err(), "nothing is offered")
			time.Sleep(100 * time.Microsecond)
		}
		m.wait(pl.Begin(0))
		m.want(pl.Version() == 4 && is(x, 4), "version 4 is not whole, or not served")
	}
	m.waitForAll()
	h, err := pl.Begin(uint64(10 - m.rank))
	m.want(err == nil && h.Wait(m.ctx) != nil, "different versions run together")
	m.want(pl.Version() == 0, "a mixture is served")
	m.must(pl.Close(m.ctx), "close a plan")
	poison(x)
	m.waitForAll()
	m.want(clean(x), "a plan writes after it was closed")
}
