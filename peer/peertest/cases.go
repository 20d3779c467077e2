package peertest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// Cases returns all cases.
func Cases() []Case {
	return []Case{
		{"transfers", 2, transfers, nil},
		{"strides", 2, strides, nil},
		{"order", 2, order, nil},
		{"mail", 3, mail, nil},
		{"groups", 5, groups, nil},
		{"windows", 3, windows, nil},
		{"plans", 3, plans, nil},
		{"mismatches", 3, mismatches, nil},
		{"versions", 2, versions, nil},
		{"replicas", 5, chainCase{}.replicas, []int{0, 1, 1, 2, 0}},
		{"death in a chain", 4, chainCase{}.death, []int{0, 1, 2, 3}},
		{"death in a run", 3, deathInARun, nil},
		{"death while a plan is made", 3, deathInADraft, nil},
		{"death beside transfers", 3, deathBesideTransfers, nil},
		{"all dial each other", 6, allDial, nil},
		{"leave", 4, leave, nil},
	}
}

var places = []where{heap, file}

// sizes of transfers, in numbers of 8 bytes: around what is sent at once, around a chunk, and more than are in flight.
var sizes = []int64{0, 1, 2047, 2048, 2049, 8 << 10, 1<<17 - 1, 1 << 17, 1<<17 + 1, 1 << 20}

func transfers(m *member) {
	for k, n := range sizes {
		for _, from := range places {
			for _, to := range places {
				for _, sendFirst := range []bool{true, false} {
					seed := 1 + k
					if m.rank == 0 {
						src := m.empty(from, n)
						fill(src, seed)
						if !sendFirst {
							m.waitForAll()
						}
						h, err := m.peer.Send(m.all(src), 1, peer.Tag(k))
						if sendFirst {
							m.waitForAll()
						}
						m.wait(h, err)
						poison(src)
						m.waitForAll()
					} else {
						dst := m.empty(to, n)
						if sendFirst {
							m.waitForAll()
						}
						h, err := m.peer.Recv(m.all(dst), 0, peer.Tag(k))
						if !sendFirst {
							m.waitForAll()
						}
						m.wait(h, err)
						m.want(is(dst, seed), "wrong elements in a transfer of %d numbers", n)
						poison(dst)
						m.waitForAll()
						m.want(clean(dst), "a transfer of %d numbers writes after its end", n)
					}
					m.free()
				}
			}
		}
	}
}

func strides(m *member) {
	const rows = 700
	for k, width := range []int64{3, 64, 700} {
		for _, at := range places {
			x := m.empty(at, rows*width*2)
			if m.rank == 0 {
				fill(x, k)
				m.wait(m.peer.Send(m.cols(x, width*2, 1, width), 1, 1))
				row := m.view(x, tensor.ShapeOf(rows, width), []int64{0, 1}, 5) // one row again and again
				m.wait(m.peer.Send(row, 1, 2))
			} else {
				poison(x)
				m.wait(m.peer.Recv(m.cols(x, width*2, width, width), 0, 1))
				for i, n := range x {
					r, c := int64(i)/(2*width), int64(i)%(2*width)
					want := int64(-7)
					if c >= width {
						want = int64(k)<<32 + r*2*width + 1 + c - width
					}
					m.want(n == want, "element %d of columns of %d is %d, want %d", i, width, n, want)
				}
				m.wait(m.peer.Recv(m.cols(x, width*2, 0, width), 0, 2))
				for i, n := range x {
					if c := int64(i) % (2 * width); c < width {
						m.want(n == int64(k)<<32+5+c, "element %d of a row that is sent again and again is %d", i, n)
					}
				}
				_, err := m.peer.Recv(m.view(x, tensor.ShapeOf(4, 4), []int64{0, 1}, 0), 0, 3)
				m.want(errors.Is(err, stepvan.ErrInvalid), "a destination that overlaps itself: got %v", err)
			}
			m.waitForAll()
			m.free()
		}
	}
}

func order(m *member) {
	lengths := []int64{5000, 1, 3000, 10, 40_000, 0, 1, 2048, 2049}
	const tags = 3
	if m.rank == 0 {
		var handles []Handle
		for i, n := range lengths {
			for tag := range tags {
				src := make([]int64, n)
				fill(src, i*tags+tag)
				h, err := m.peer.Send(m.all(src), 1, peer.Tag(tag))
				m.must(err, "send")
				handles = append(handles, h)
			}
		}
		for _, h := range handles {
			m.wait(h, nil)
		}
		return
	}
	for tag := tags - 1; tag >= 0; tag-- {
		for i, n := range lengths {
			dst := make([]int64, n)
			m.wait(m.peer.Recv(m.all(dst), 0, peer.Tag(tag)))
			m.want(is(dst, i*tags+tag), "transfer %d with tag %d is out of order", i, tag)
		}
	}
}

func mail(m *member) {
	const count = 500
	came := make(chan string, 2*count*m.size)
	for to := range m.size { // before anybody listens, and to itself as well
		for i := range count {
			m.must(m.peer.Mail(stepvan.Rank(to), "post", bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 1+i%100)), "mail")
		}
	}
	stop, err := m.peer.Listen("post", func(from stepvan.Rank, body []byte) {
		came <- fmt.Sprint(from, " ", int(body[0])+int(body[1])<<8, " ", len(body))
	})
	m.must(err, "listen")
	defer stop()
	next := make([]int, m.size)
	for range count * m.size {
		var from, i, n int
		select {
		case text := <-came:
			_, _ = fmt.Sscan(text, &from, &i, &n)
		case <-m.ctx.Done():
			m.fail("mail is missing: %v have come", next)
		}
		m.want(i == next[from] && n == 2*(1+i%100), "message %d of peer %d comes in place of %d", i, from, next[from])
		next[from]++
	}
	m.waitForAll()
}

func groups(m *member) {
	g, err := m.peer.Group("all", m.ranks(-1))
	m.must(err, "group")
	for round := range 20 {
		mine := bytes.Repeat([]byte{byte(m.rank), byte(round)}, round*m.rank*1000)
		have, err := g.AllGather(m.ctx, mine)
		m.must(err, "all_gather")
		for i, b := range have {
			m.want(bytes.Equal(b, bytes.Repeat([]byte{byte(i), byte(round)}, round*i*1000)), "round %d: wrong bytes of peer %d", round, i)
		}
		m.must(g.Barrier(m.ctx), "barrier")
	}
	for _, c := range []struct {
		ranks []stepvan.Rank
		text  string
	}{
		{m.ranks(m.rank), "not a member"}, {[]stepvan.Rank{stepvan.Rank(m.rank), stepvan.Rank(m.rank)}, "named twice"},
		{[]stepvan.Rank{stepvan.Rank(m.rank), 99}, "no such peer"},
	} {
		_, err := m.peer.Group("wrong", c.ranks)
		m.want(errors.Is(err, stepvan.ErrInvalid) && strings.Contains(err.Error(), c.text), "group %v: got %v", c.ranks, err)
	}
	m.waitForAll()
}

func windows(m *member) {
	const rows, width = 400, 300
	for _, at := range places {
		for _, n := range []int64{1, rows} {
			var w, readOnly Window
			x := m.empty(at, rows*width)
			fill(x, 9)
			var token []byte
			notes := make(chan string, 1)
			if m.rank == 0 {
				var err error
				w, err = m.peer.Expose(m.cols(x, width, 0, width), peer.WindowOptions{
					Rights: peer.RightRead | peer.RightWrite, Peers: []stepvan.Rank{1},
					Note: func(from stepvan.Rank, note []byte) { notes <- fmt.Sprint(from, " ", string(note)) },
				})
				m.must(err, "expose")
				readOnly, err = m.peer.Expose(m.cols(x, width, 0, width), peer.WindowOptions{})
				m.must(err, "expose")
				a, b := w.Token(), readOnly.Token()
				token = append(a[:], b[:]...)
			}
			token = m.exchange(token)[0]
			a, b := peer.Token(token), peer.Token(token[32:])
			part := m.empty(heap, n*20)
			small := m.cols(part, 20, 0, 20)
			if m.rank == 1 {
				m.wait(m.peer.Get(small, a, []int64{rows - n, 30}))
				for i, got := range part {
					m.want(got == 9<<32+(rows-n+int64(i)/20)*width+30+int64(i)%20, "wrong element %d in a get", i)
				}
				fill(part, 11)
				m.wait(m.peer.Put(small, a, []int64{0, 7}, []byte("written")))
				poison(part)
				forged := a
				forged[19] ^= 1
				h, err := m.peer.Get(small, forged, nil)
				_ = m.refused(h, err, stepvan.ErrStale, "a forged token")
				h, err = m.peer.Get(small, a, []int64{rows - n + 1, 0})
				_ = m.refused(h, err, stepvan.ErrInvalid, "a part out of range")
				h, err = m.peer.Put(small, b, nil, nil)
				m.want(err != nil || h.Wait(m.ctx) != nil, "a put on a window that may only be read")
			}
			if m.rank == 2 {
				h, err := m.peer.Get(small, a, nil)
				_ = m.refused(h, err, stepvan.ErrRemote, "the token of another peer")
				m.wait(m.peer.Get(small, b, []int64{rows - n, 30}))
			}
			m.waitForAll()
			if m.rank == 0 {
				select {
				case note := <-notes:
					m.want(note == "1 written", "wrong note %q of a put", note)
				case <-m.ctx.Done():
					m.must(m.ctx.Err(), "the note of a put")
				}
				for i := range n * 20 {
					m.want(x[i/20*width+7+i%20] == 11<<32+i, "element %d of a put is missing", i)
				}
				m.must(w.Close(m.ctx), "close a window")
				m.must(readOnly.Close(m.ctx), "close a window")
			}
			m.waitForAll()
			if m.rank == 1 {
				h, err := m.peer.Get(small, a, nil)
				_ = m.refused(h, err, stepvan.ErrStale, "a window that was closed")
			}
			m.waitForAll()
			m.free()
		}
	}
}

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

// noticeTime is how long it may take from a death to the errors that name it.
const noticeTime = 2 * time.Second

// dies ends the last member after a random time. It returns true at the others.
func (m *member) dies(most time.Duration) (lives bool) {
	pause := time.Duration(m.rng.Int64N(int64(most)))
	if m.rank == m.size-1 {
		time.Sleep(pause)
		m.die()
		return false
	}
	return true
}

// names checks that an error names the member that died.
func (m *member) names(err error) {
	dead := fmt.Sprint("peer ", m.size-1)
	m.want(strings.Contains(err.Error(), dead) || errors.Is(err, stepvan.ErrRemote), "the error does not name %s: %v", dead, err)
}

func deathInARun(m *member) {
	x := newExchange(m, []int{0, 1, 2}, 4000, 20, []where{heap, file}[m.rng.IntN(2)], []where{heap, file}[m.rng.IntN(2)])
	x.make("weights")
	x.write(1)
	h, err := x.plan.Begin(1)
	m.wait(h, err)
	m.want(x.plan.Version() == 1 && x.whole(1), "version 1 is not whole, or not served")
	m.waitForAll()
	last, dead := dying{x.plan, x.write, x.whole, m.names}.run(m)
	if dead {
		return
	}
	if _, err := x.plan.Begin(last + 9); err == nil {
		m.fail("a plan runs after the death of a peer")
	}
	m.must(x.plan.Close(m.ctx), "close a plan")
	y := newExchange(m, []int{0, 1}, 100, 20, file, heap)
	y.make("weights")
	y.run(1)
	m.must(y.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}

// dying is a plan, whose version 1 is whole, and which runs until the last member dies.
type dying struct {
	plan  Plan
	write func(version uint64)
	whole func(version uint64) bool
	names func(error) // looks at the error of a run that has ended by the death
}

// run returns the last version that is whole, and whether this member is the dead one. Nobody serves a mixture, and the
// others hear of the death in time.
func (d dying) run(m *member) (last uint64, dead bool) {
	if m.rank == m.size-1 {
		go func() { m.dies(3 * time.Millisecond) }()
	}
	last = 1
	for version := uint64(2); ; version++ {
		m.must(m.ctx.Err(), "nobody dies")
		d.write(version)
		h, err := d.plan.Begin(version)
		if err == nil {
			begun := time.Now()
			err = h.Wait(m.ctx)
			m.want(err == nil || time.Since(begun) < noticeTime+time.Second, "the death was told after %v", time.Since(begun))
		}
		v := d.plan.Version()
		m.want(v == 0 || v == version || v == last, "version %d is served, want 0, %d or %d", v, version, last)
		m.want(v == 0 || d.whole(v), "version %d is served, and is not whole", v)
		m.want(err != nil || v == version, "a run of version %d ends well, and version %d is served", version, v)
		switch {
		case err == nil:
			last = version
		case m.rank == m.size-1:
			<-m.dead
			m.must(d.plan.Close(m.ctx), "close a plan")
			return last, true
		default:
			d.names(err)
			return last, false
		}
	}
}

func deathInADraft(m *member) {
	m.must(m.peer.Connect(m.ctx, m.ranks(m.rank)...), "connect")
	m.waitForAll()
	x := newExchange(m, []int{0, 1, 2}, 50, 20, file, file)
	if m.rank == m.size-1 {
		go func() { m.dies(time.Millisecond) }()
	}
	pl, err := m.peer.Plan(m.ctx, "draft", x.sends, x.recvs)
	if m.rank == m.size-1 {
		<-m.dead
		if err == nil {
			m.must(pl.Close(m.ctx), "close a plan")
		}
		return
	}
	begun := time.Now()
	if err == nil {
		var h Handle
		if h, err = pl.Begin(1); err == nil {
			err = h.Wait(m.ctx)
		}
		m.want(err != nil, "a plan runs with a dead peer")
		m.must(pl.Close(m.ctx), "close a plan")
	}
	m.want(time.Since(begun) < noticeTime+time.Second, "the death was told after %v", time.Since(begun))
	m.names(err)
	y := newExchange(m, []int{0, 1}, 50, 20, heap, file)
	y.make("another draft")
	y.run(1)
	m.must(y.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}

func deathBesideTransfers(m *member) {
	m.must(m.peer.Connect(m.ctx, m.ranks(m.rank)...), "connect")
	m.waitForAll()
	if !m.dies(time.Millisecond) {
		return
	}
	lost := m.empty(file, 1<<16)
	h, err := m.peer.Recv(m.all(lost), stepvan.Rank(m.size-1), 1)
	begun := time.Now()
	m.names(m.refused(h, err, stepvan.ErrPeerLost, "a transfer with a dead peer"))
	m.want(time.Since(begun) < noticeTime, "the death was told after %v", time.Since(begun))
	x := m.empty(heap, 1<<16)
	if m.rank == 0 {
		fill(x, 1)
		m.wait(m.peer.Send(m.all(x), 1, 1))
	} else {
		m.wait(m.peer.Recv(m.all(x), 0, 1))
		m.want(is(x, 1), "wrong elements beside a death")
	}
	m.waitForAll()
}

func allDial(m *member) {
	var handles []Handle
	in := make([][]int64, m.size)
	for r := range m.size {
		src := make([]int64, 3000)
		fill(src, m.rank)
		in[r] = make([]int64, 3000)
		h, err := m.peer.Recv(m.all(in[r]), stepvan.Rank(r), 1)
		m.must(err, "recv")
		s, err := m.peer.Send(m.all(src), stepvan.Rank(r), 1)
		m.must(err, "send")
		handles = append(handles, h, s)
	}
	for _, h := range handles {
		m.wait(h, nil)
	}
	for r := range in {
		m.want(is(in[r], r), "wrong elements of peer %d", r)
	}
	m.waitForAll()
}

func leave(m *member) {
	m.must(m.peer.Connect(m.ctx, m.ranks(m.rank)...), "connect")
	g, err := m.peer.Group("last", m.ranks(-1))
	m.must(err, "group")
	m.must(g.Barrier(m.ctx), "barrier")
	if m.rank == m.size-1 {
		m.quit()
		return
	}
	h, err := m.peer.Recv(m.all(make([]int64, 9)), stepvan.Rank(m.size-1), 1)
	m.names(m.refused(h, err, stepvan.ErrPeerLost, "a transfer with a peer that has left"))
	x := m.empty(heap, 100)
	next, before := stepvan.Rank((m.rank+1)%(m.size-1)), stepvan.Rank((m.rank+m.size-2)%(m.size-1))
	s, err := m.peer.Send(m.all(x), next, 1)
	m.must(err, "send")
	m.wait(m.peer.Recv(m.all(make([]int64, 100)), before, 1))
	m.wait(s, nil)
	m.waitForAll()
}
