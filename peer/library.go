package peer

import (
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// Library is what packages over this one need beside the methods of [Peer]. Programs do without it. Any goroutine may
// call its methods.
type Library struct{ p *Peer }

// Library returns it.
func (p *Peer) Library() Library { return Library{p} }

// Engine is what a wait drives.
func (l Library) Engine() *progress.Engine { return l.p.link.Engine() }

// Keep returns what a package keeps with this peer under a key. The first call makes it. make must not call this
// package.
func (l Library) Keep(key any, make func() any) any {
	p := l.p
	p.mu.Lock()
	defer p.unlock()
	v, ok := p.users.kept[key]
	if !ok {
		v = make()
		p.users.kept[key] = v
	}
	return v
}

// lossWatcher is told of lost connections.
type lossWatcher struct {
	f func(rank stepvan.Rank, err error)
}

// OnLost has f called when the connection with a peer ends, whatever the reason, and when a peer dies that had none.
// What was sent to it may not have arrived. The error names the peer. f may be called several times for a peer. It
// must neither block nor call this package.
func (l Library) OnLost(f func(rank stepvan.Rank, err error)) (stop func()) {
	w := &lossWatcher{f}
	p := l.p
	p.mu.Lock()
	defer p.unlock()
	p.users.losses = append(p.users.losses, w)
	for _, r := range p.remotes {
		if r.dead != nil {
			f(r.Rank, r.named(r.dead))
		}
	}
	return func() {
		p.mu.Lock()
		defer p.unlock()
		p.users.losses = slices.DeleteFunc(p.users.losses, func(x *lossWatcher) bool { return x == w })
	}
}

// tellLost tells the watchers that the connection with a peer has ended. Under Peer.mu.
func (u *users) tellLost(rank stepvan.Rank, why error) {
	for _, w := range u.losses {
		w.f(rank, why)
	}
}

// Private reports whether all that comes from a peer was sent on this machine by a process of this user. It is so where
// the connection goes through memory or a folder that nobody else can enter. Without a connection it is not.
func (l Library) Private(rank stepvan.Rank) bool {
	p := l.p
	p.mu.Lock()
	defer p.unlock()
	r, err := p.find("private", rank)
	if err != nil || r.self() {
		return err == nil
	}
	return r.session != nil && slices.Contains(privateVans, r.session.Van())
}

// privateVans connect processes of one user on one machine alone.
var privateVans = []string{"shm", "unix", "mem"}
