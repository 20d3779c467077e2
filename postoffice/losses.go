package postoffice

import (
	"slices"
	"time"
)

// losses are the members that left or died while the cluster worked. The scheduler's lock guards them.
type losses struct {
	s    *Scheduler
	all  []*member // in the order of their end
	sent int       // how many of them the members know
}

// firstOf is the first member of the group's roles that left or died, if any did.
func (l *losses) firstOf(g Group) *member {
	i := slices.IndexFunc(l.all, func(m *member) bool { return g.Has(m.info.Role) })
	if i < 0 {
		return nil
	}
	return l.all[i]
}

// add logs a loss, tells all members, together with other losses that follow shortly, and ends the rounds that need m.
func (l *losses) add(m *member) {
	event := l.s.o.Log.Error()
	if m.left {
		event = l.s.o.Log.Info()
	}
	event.Uint64("epoch", l.s.epoch).Msg(lossOf(m).Text)
	if len(l.all) == l.sent {
		time.AfterFunc(gather, func() {
			defer l.s.o.Recover()
			l.s.lock()
			defer l.s.unlock()
			l.send()
		})
	}
	l.all = append(l.all, m)
	body := marshal(lossOf(m))
	for _, a := range l.s.barriers.breakFor(m.info.Role) {
		l.s.send(a.m.conn, frame{op: opBroken, request: a.request, body: body})
	}
}

// send sends the news of losses.
func (l *losses) send() {
	var news []goneNode
	for _, m := range l.all[l.sent:] {
		n := m.info
		news = append(news, goneNode{ID: n.ID, Role: n.Role, Rank: n.Rank, Host: n.Host, PID: n.PID, Left: m.left, Reason: m.reason})
	}
	l.sent = len(l.all)
	epoch := l.s.epoch - uint64(len(news))
	for _, page := range pages(news) {
		epoch += uint64(len(page))
		l.s.broadcast(encode(opGone, 0, map[string]any{"epoch": epoch, "nodes": page}))
	}
}
