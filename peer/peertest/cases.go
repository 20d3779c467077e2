package peertest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
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
