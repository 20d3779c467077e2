package postoffice

import (
	"time"

	"github.com/stepvan/stepvan"
)

// losses are the members that left or died while the cluster worked. The scheduler's lock guards them.
type losses struct {
	s      *Scheduler
	firsts map[stepvan.Role]*member // first to go of each role
	news   []goneNode               // not told yet
}

// firstOf is the first member of the group's roles that left or died, if any did.
func (l *losses) firstOf(g Group) *member {
	for role := range l.s.o.sizes() {
		if m := l.firsts[role]; m != nil && g.Has(role) {
			return m
		}
	}
	return nil
}

// add logs a loss and tells all members, together with other losses that follow shortly.
func (l *losses) add(m *member) {
	if l.firsts[m.info.Role] == nil {
		l.firsts[m.info.Role] = m
	}
	event := l.s.o.Log.Error()
	if m.left {
		event = l.s.o.Log.Info()
	}
	event.Uint64("epoch", l.s.epoch).Msg(lossOf(m).Text)
	if len(l.news) == 0 {
		time.AfterFunc(gather, func() {
			defer l.s.o.Recover()
			l.sendGathered()
		})
	}
	n := m.info
	l.news = append(l.news, goneNode{ID: n.ID, Role: n.Role, Rank: n.Rank, Host: n.Host, PID: n.PID, Left: m.left, Reason: m.reason})
}

// sendGathered sends the news of losses that have been gathered.
func (l *losses) sendGathered() {
	l.s.lock()
	defer l.s.unlock()
	l.send()
}

// send sends the news of losses.
func (l *losses) send() {
	epoch := l.s.epoch - uint64(len(l.news))
	for _, page := range pages(l.news) {
		epoch += uint64(len(page))
		l.s.broadcast(encode(opGone, 0, map[string]any{"epoch": epoch, "nodes": page}))
	}
	l.news = nil
}

// breakRounds ends the rounds that g was needed for.
func (l *losses) breakRounds(g *member) {
	f := lossOf(g)
	body := marshal(f)
	for _, a := range l.s.barriers.breakFor(g.info.Role) {
		l.s.send(a.m.conn, frame{op: opBroken, request: a.request, body: body})
	}
}
