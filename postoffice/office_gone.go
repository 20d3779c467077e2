package postoffice

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// State says whether a node takes part.
type State uint8

// States of a node.
const (
	Alive State = iota
	Left        // on purpose
	Dead
)

// String is a word for messages.
func (s State) String() string { return [...]string{"alive", "left", "dead"}[min(s, Dead)] }

// standing is what an office knows about one peer.
type standing struct {
	info   Peer
	state  State
	reason string
}

// State says whether the peer lives, and the reason if it does not. Nodes that are
// no peers are Alive as far as this node knows.
func (f *Office) State(id wire.PeerID) (State, string) {
	f.lock()
	defer f.unlock()
	if s := f.states[id]; s != nil {
		return s.state, s.reason
	}
	return Alive, ""
}

// gone takes in that nodes left or died.
func (f *Office) gone(fr frame) error {
	var b goneBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if b.Epoch > f.epoch {
		f.epoch = b.Epoch
		f.number(b.Epoch)
	}
	for _, g := range b.Nodes {
		info := g.info()
		if s := f.states[g.ID]; s != nil {
			info = s.info
			s.state, s.reason = Dead, g.Reason
			if g.Left {
				s.state = Left
			}
		}
		f.tellGone(info, g)
	}
	return nil
}

func (f *Office) tellGone(info Peer, g goneNode) {
	if g.Left {
		f.o.Log.Info().Uint64("epoch", f.epoch).Msgf("%s left: %s", info, g.Reason)
		if on := f.o.OnLeft; on != nil {
			f.later(func() {
				f.calls.Lock()
				defer f.calls.Unlock()
				on(info)
			})
		}
		return
	}
	f.o.Log.Error().Uint64("epoch", f.epoch).Msgf("%s died: %s", info, g.Reason)
	f.tellDead(info, fmt.Errorf("%w: %s died: %s", stepvan.ErrPeerLost, info, g.Reason))
}

func (f *Office) tellDead(info Peer, err error) {
	if on := f.o.OnDead; on != nil {
		f.later(func() {
			f.calls.Lock()
			defer f.calls.Unlock()
			on(info, err)
		})
	}
}
