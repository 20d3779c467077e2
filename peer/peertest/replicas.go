package peertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// chainCase has the cases of plans with replicas.
type chainCase struct{}

// spread is a matrix that a member sends to others.
type spread struct {
	source     int
	rows, cols int64
	to         []int
}

// replica is a destination of a spread matrix at a member. No other member has the same strides.
type replica struct {
	number int
	list   []int64
	place  func(row, col int64) int64
}

// spreading is a plan with replicas, at a member.
type spreading struct {
	m            *member
	all          []spread
	srcs         [][]int64
	dsts         []replica
	sends, recvs []peer.Move
	plan         Plan
}

func newSpreading(m *member, all []spread, from, to where) *spreading {
	x := &spreading{m: m, all: all, srcs: make([][]int64, len(all))}
	for i, s := range all {
		id := func(member int) uint64 { return uint64((len(all)-i)*100 + member) }
		if s.source == m.rank {
			x.srcs[i] = m.empty(from, s.rows*(s.cols+2))
		}
		for _, r := range s.to {
			switch m.rank {
			case s.source:
				x.sends = append(x.sends, peer.Move{ID: id(r), Peer: stepvan.Rank(r), View: m.cols(x.srcs[i], s.cols+2, 1, s.cols)})
			case r:
				x.receive(i, id(r), to)
			}
		}
	}
	return x
}

// receive adds a destination. At members with an even rank, the rows of the matrix are columns.
func (x *spreading) receive(number int, id uint64, at where) {
	m, s := x.m, x.all[number]
	width, first := s.cols+int64(m.rank)+1, int64(m.rank)
	d := replica{number: number, list: m.empty(at, s.rows*width), place: func(row, col int64) int64 { return row*width + first + col }}
	view := func() tensor.Strided { return m.cols(d.list, width, first, s.cols) }
	if m.rank%2 == 0 {
		high := s.rows + 3
		d.list, d.place = m.empty(at, s.cols*high), func(row, col int64) int64 { return col*high + row }
		view = func() tensor.Strided { return m.view(d.list, tensor.ShapeOf(s.rows, s.cols), []int64{1, high}, 0) }
	}
	poison(d.list)
	x.dsts = append(x.dsts, d)
	x.recvs = append(x.recvs, peer.Move{ID: id, Peer: stepvan.Rank(s.source), View: view()})
}

func (x *spreading) write(version uint64) {
	for i, list := range x.srcs {
		for k := range list {
			list[k] = number(version, x.all[i].source, i, int64(k))
		}
	}
}

// whole reports whether all elements are of a version, and nothing else was written.
func (x *spreading) whole(version uint64) bool {
	for _, d := range x.dsts {
		s := x.all[d.number]
		left := len(d.list)
		for row := range s.rows {
			for col := range s.cols {
				if d.list[d.place(row, col)] != number(version, s.source, d.number, row*(s.cols+2)+1+col) {
					return false
				}
				left--
			}
		}
		for _, n := range d.list {
			if n == -7 {
				left--
			}
		}
		if left != 0 {
			return false
		}
	}
	return true
}

func (x *spreading) make(name string) {
	var err error
	x.plan, err = x.m.peer.PlanWith(x.m.ctx, name, x.sends, x.recvs, peer.PlanOptions{Replicas: true})
	x.m.must(err, "make a plan")
}

// namesDead checks that the text of an error has the member that died, which another member may have told.
func (x *spreading) namesDead(err error) {
	dead := fmt.Sprint("peer ", x.m.size-1)
	x.m.want(strings.Contains(err.Error(), dead), "the error does not name %s: %v", dead, err)
}

// begin begins a run. A member that only receives waits until it is offered.
func (x *spreading) begin(version uint64) (Handle, error) {
	if len(x.sends) > 0 {
		x.write(version)
		return x.plan.Begin(version)
	}
	for {
		if v, ok := x.plan.Offered(); ok {
			x.m.want(v == version, "version %d is offered, want %d", v, version)
			return x.plan.Begin(0)
		}
		x.m.must(x.m.ctx.Err(), "nothing is offered")
		time.Sleep(100 * time.Microsecond)
	}
}

// replicas has two members send to many, on several machines where the members share memory.
func (chainCase) replicas(m *member) {
	all := []spread{
		{0, 1, 7, []int{1, 2, 3, 4}},
		{0, 300, 40, []int{1, 2, 3, 4}},
		{0, 500, 700, []int{1, 2, 3, 4}},
		{0, 64, 64, []int{1, 3}},
		{3, 200, 900, []int{0, 1, 2, 4}},
		{3, 10, 10, []int{0, 1, 2}},
		{3, 1, 1, []int{0, 4}},
	}
	for round := range 4 {
		x := newSpreading(m, all, places[round/2], places[round%2])
		x.make("replicas")
		for version := uint64(1); version < 4; version++ {
			h, err := x.begin(version)
			m.wait(h, err)
			m.want(x.plan.Version() == version, "version %d is served, want %d", x.plan.Version(), version)
			m.want(x.whole(version), "version %d is not whole", version)
			if version == 2 { // else the sources may be ahead
				m.waitForAll()
			}
		}
		x.checkStats()
		m.must(x.plan.Close(m.ctx), "close a plan")
		for _, d := range x.dsts {
			poison(d.list)
		}
		m.waitForAll()
		for _, d := range x.dsts {
			m.want(clean(d.list), "a plan writes after it was closed")
		}
		m.free()
	}
}

// checkStats checks that each source sends one copy, and one more to each member that shares its memory.
func (x *spreading) checkStats() {
	var want, received int64
	for _, s := range x.all {
		bytes := s.rows * s.cols * 8
		if s.source == x.m.rank {
			want += bytes
			if x.m.shares && s.source == 0 && len(s.to) == 4 {
				want += bytes // for member 4
			}
		}
		for _, r := range s.to {
			if r == x.m.rank {
				received += bytes
			}
		}
	}
	s := x.plan.Stats()
	x.m.want(s.Received == received, "%d bytes are received, want %d", s.Received, received)
	x.m.want(s.Sent-s.Passed == want, "%d bytes are sent, and %d passed on, want %d from here", s.Sent, s.Passed, want)
}

// death kills the receiver in the middle.
func (chainCase) death(m *member) {
	x := newSpreading(m, []spread{{1, 200, 900, []int{0, 2, 3}}}, heap, heap)
	x.make("weights")
	h, err := x.begin(1)
	m.wait(h, err)
	m.want(x.whole(1), "version 1 is not whole")
	m.waitForAll()
	if _, dead := (dying{x.plan, x.write, x.whole, x.namesDead}).run(m); dead {
		return
	}
	m.must(x.plan.Close(m.ctx), "close a plan")
	y := newSpreading(m, []spread{{1, 50, 90, []int{0, 2}}}, heap, heap)
	y.make("weights")
	h, err = y.begin(1)
	m.wait(h, err)
	m.want(y.whole(1), "a plan after a death is not whole")
	m.must(y.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}
