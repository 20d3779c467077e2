package postoffice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// keeper keeps the board. The scheduler's lock guards it.
type keeper struct {
	s       *Scheduler
	own     *Board // of this process
	entries map[string]*posted
	bytes   int
	last    uint64   // change
	changes []change // in their order; those that a later change of their entry has replaced do not count
	watches []*watch
	served  time.Time // when the watches were last told of changes
	due     bool      // they will be
}

// posted is an entry as the keeper has it.
type posted struct {
	owner   *member
	key     string
	bytes   int    // of key and value
	order   uint64 // the change that has made it
	latest  uint64 // the change that has given it its value
	encoded []byte // as an Entry
	gone    bool
}

// change is one of an entry.
type change struct {
	number uint64
	of     *posted
}

func (c change) counts() bool { return c.number == c.of.latest && !c.of.gone }

// shelf is what a member has on the board.
type shelf struct {
	entries map[string]*posted
	bytes   int
	watches map[uint64]*watch // by request
}

func newKeeper(s *Scheduler) *keeper {
	k := &keeper{s: s, own: newBoard(s.engine), entries: map[string]*posted{}}
	k.own.send = func(f frame) {
		s.lock()
		defer s.unlock()
		_ = k.handle(s.members.self, f) // this process has made it
	}
	return k
}

// handle does what a message about the board asks for. Its error is the member's mistake.
func (k *keeper) handle(m *member, f frame) error {
	if f.request == 0 {
		return malformed(f.op, "request 0")
	}
	switch f.op {
	case opPost:
		return receive(f, func(b *postBody) error { k.answer(m, f.request, k.post(m, b)); return nil })
	case opRemove:
		return receive(f, func(b *removeBody) error { k.answer(m, f.request, k.remove(m, b)); return nil })
	case opWatch:
		return receive(f, func(b *watchBody) error { return k.watch(m, f.request, b.Prefix) })
	case opNext:
		return k.next(m, f.request)
	}
	k.unwatch(m, f.request)
	return nil
}

// answer tells m the result of a request. Watches of m hear of the change after that.
func (k *keeper) answer(m *member, request uint64, why *failure) {
	if why != nil {
		k.s.send(m.conn, encode(opNotPosted, request, why))
		return
	}
	k.s.send(m.conn, frame{op: opPosted, request: request})
	k.tell()
}

// post makes or replaces an entry, or says why not.
func (k *keeper) post(m *member, b *postBody) *failure {
	old, bytes := k.entries[b.Key], len(b.Key)+len(b.Value)
	entries, before := len(m.shelf.entries)+1, 0
	if old != nil {
		entries, before = entries-1, old.bytes
	}
	switch {
	case old != nil && old.owner != m:
		return owned(b.Key, old.owner)
	case entries > maxOwnEntries || m.shelf.bytes+bytes-before > maxOwnBytes:
		return refusal("this node has %d entries of %d bytes, and may have %d of %d: remove some", len(m.shelf.entries), m.shelf.bytes, maxOwnEntries, maxOwnBytes)
	case len(k.entries)-len(m.shelf.entries)+entries > maxEntries || k.bytes+bytes-before > maxEntryBytes:
		return refusal("the board is full, with %d entries of %d bytes: remove some", len(k.entries), k.bytes)
	}
	k.put(m, b, bytes-before)
	return nil
}

// put notes an entry, with which m has more bytes.
func (k *keeper) put(m *member, b *postBody, more int) {
	k.last++
	n := k.entries[b.Key]
	if n == nil {
		n = &posted{owner: m, key: b.Key, order: k.last}
		k.entries[b.Key] = n
		if m.shelf.entries == nil {
			m.shelf.entries = map[string]*posted{}
		}
		m.shelf.entries[b.Key] = n
	}
	owner := Peer{ID: m.info.ID, Role: m.info.Role, Rank: m.info.Rank, Host: m.info.Host, PID: m.info.PID}
	n.latest, n.encoded = k.last, marshal(Entry{Key: b.Key, Value: b.Value, Order: n.order, Owner: owner})
	n.bytes += more
	m.shelf.bytes += more
	k.bytes += more
	k.changes = append(k.changes, change{k.last, n})
	if len(k.changes) > 2*len(k.entries)+maxOwnEntries {
		k.changes = slices.DeleteFunc(k.changes, func(c change) bool { return !c.counts() })
	}
}

// remove removes an entry of m, or says why not.
func (k *keeper) remove(m *member, b *removeBody) *failure {
	n := k.entries[b.Key]
	switch {
	case n == nil:
		return refusal("key %q: there is no such entry: it was never posted, or it was removed", b.Key)
	case n.owner != m:
		return owned(b.Key, n.owner)
	case b.Only != nil && !n.has(*b.Only):
		return refusal("key %q: the entry has another value", b.Key)
	}
	k.drop(n)
	return nil
}

// has reports whether the entry has a value.
func (n *posted) has(value []byte) bool {
	var e Entry
	return json.Unmarshal(n.encoded, &e) == nil && bytes.Equal(e.Value, value)
}

func (k *keeper) drop(n *posted) {
	n.gone, n.encoded = true, nil
	delete(k.entries, n.key)
	delete(n.owner.shelf.entries, n.key)
	n.owner.shelf.bytes -= n.bytes
	k.bytes -= n.bytes
	for _, w := range k.watches {
		w.forget(n)
	}
}

// depart removes whatever a member that is gone has on the board, and its watches.
func (k *keeper) depart(m *member) {
	k.watches = slices.DeleteFunc(k.watches, func(w *watch) bool { return w.m == m })
	if len(m.shelf.entries) == 0 {
		return
	}
	for _, n := range m.shelf.entries {
		k.drop(n)
	}
	k.tell()
}

func refusal(format string, args ...any) *failure {
	return &failure{Kind: failRefused, Text: fmt.Sprintf(format, args...)}
}

// owned is the error of a key of another node.
func owned(key string, owner *member) *failure {
	f := refusal("key %q: it belongs to %s: choose another key", key, owner.info)
	f.Node = owner.info.Name()
	return f
}

// watch is one of a member: what it has not been told yet.
type watch struct {
	m       *member
	request uint64
	prefix  string
	idle    bool     // the member waits for a piece
	more    bool     // its last piece was not the end
	reset   bool     // it is to forget what it knows
	seen    uint64   // the last change that it was told of
	removed []string // keys of entries that it may know
}

// maxRemoved is how many removed keys a watch may lag behind. After that it begins again.
const maxRemoved = 1 << 10

// forget notes that an entry is gone.
func (w *watch) forget(n *posted) {
	switch {
	case n.order > w.seen || !strings.HasPrefix(n.key, w.prefix): // it does not know the entry
	case len(w.removed) == maxRemoved:
		w.reset, w.seen, w.removed = true, 0, nil
	default:
		w.removed = append(w.removed, n.key)
	}
}

// watch begins a watch with its first piece, or refuses it.
func (k *keeper) watch(m *member, request uint64, prefix string) error {
	open := m.shelf.watches
	switch {
	case open[request] != nil:
		return malformed(opWatch, "request %d is open already", request)
	case len(open) == maxWatches:
		k.answer(m, request, refusal("this node has %d watches, and may have no more at a time: end some", len(open)))
		return nil
	case open == nil:
		m.shelf.watches = map[uint64]*watch{}
	}
	w := &watch{m: m, request: request, prefix: prefix, idle: true, reset: true}
	m.shelf.watches[request] = w
	k.watches = append(k.watches, w)
	k.serve(w)
	return nil
}

// unwatch ends a watch. The keeper may have refused it.
func (k *keeper) unwatch(m *member, request uint64) {
	if w := m.shelf.watches[request]; w != nil {
		delete(m.shelf.watches, request)
		k.watches = slices.DeleteFunc(k.watches, func(o *watch) bool { return o == w })
	}
}

// next notes that a member has taken a piece, and waits for the next one.
func (k *keeper) next(m *member, request uint64) error {
	w := m.shelf.watches[request]
	if w == nil || w.idle {
		return malformed(opNext, "not expected")
	}
	w.idle = true
	switch {
	case w.more:
		k.serve(w)
	case w.reset, len(w.removed) > 0, w.seen < k.last:
		k.tell()
	}
	return nil
}

// tell tells all watches of changes: at once after a quiet time, and otherwise together with those that follow shortly.
func (k *keeper) tell() {
	if k.due || len(k.watches) == 0 {
		return
	}
	wait := gather - time.Since(k.served)
	if wait <= 0 {
		k.serveAll()
		return
	}
	k.due = true
	time.AfterFunc(wait, func() {
		defer k.s.o.Recover()
		k.s.lock()
		defer k.s.unlock()
		k.due = false
		k.serveAll()
	})
}

func (k *keeper) serveAll() {
	k.served = time.Now()
	for _, w := range k.watches {
		k.serve(w)
	}
}

// serve sends a piece to a member that waits for one, if there is news.
func (k *keeper) serve(w *watch) {
	if !w.idle {
		return
	}
	if p := k.collect(w); p.news() {
		w.idle, w.more = false, p.more
		k.s.send(w.m.conn, frame{op: opBoard, request: w.request, body: p.body()})
	}
}

// collect makes the next piece of a watch: what it knows and is gone, and then changes in their order.
func (k *keeper) collect(w *watch) *piece {
	p := &piece{reset: w.reset}
	w.reset = false
	for len(w.removed) > 0 {
		if !p.add(&p.removed, marshal(w.removed[0])) {
			return p
		}
		w.removed = w.removed[1:]
	}
	w.removed = nil
	i := sort.Search(len(k.changes), func(i int) bool { return k.changes[i].number > w.seen })
	for _, c := range k.changes[i:] {
		if c.counts() && strings.HasPrefix(c.of.key, w.prefix) && !p.add(&p.entries, c.of.encoded) {
			return p
		}
		w.seen = c.number
	}
	w.seen = k.last
	return p
}

// piece is a boardBody that is being made. Its parts are encoded already.
type piece struct {
	reset, more      bool
	removed, entries [][]byte
	size             int
}

// add adds to a part, unless the message would become too large.
func (p *piece) add(part *[][]byte, encoded []byte) bool {
	if p.size+len(encoded)+1 > fullMessage {
		p.more = true
		return false
	}
	p.size += len(encoded) + 1
	*part = append(*part, encoded)
	return true
}

func (p *piece) news() bool { return p.reset || len(p.removed)+len(p.entries) > 0 }

func (p *piece) body() []byte {
	b := fmt.Appendf(nil, `{"reset":%t,"more":%t,"removed":[`, p.reset, p.more)
	b = append(b, bytes.Join(p.removed, []byte(","))...)
	b = append(b, `],"entries":[`...)
	b = append(b, bytes.Join(p.entries, []byte(","))...)
	return append(b, `]}`...)
}
