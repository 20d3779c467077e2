package link

import "github.com/stepvan/stepvan/internal/registry"

// holds keep the sources of messages registered. A message may go in pieces, and a program may end the registration of
// its memory meanwhile. The first piece has the device write into the peer's memory, so the others must not go another
// way. What the van has accepted needs no hold. Session.mu guards them.
type holds map[*Outbound][]registry.Hold

// take holds the memory that o is written from, unless that is done, or the caller does. It reports false where some of
// it is not registered. Only messages of several pieces over a van with a device come here.
func (x *holds) take(r *registry.Registry, o *Outbound) bool {
	if o.use != targetsUsed || o.Direct || o.sent > 0 || (*x)[o] != nil {
		return true
	}
	list := make([]registry.Hold, 0, len(o.Payload))
	for i, b := range o.Payload {
		if o.Targets[i].IsZero() || len(b) == 0 {
			continue
		}
		h, ok := r.Hold(b)
		if !ok {
			releaseAll(r, list)
			return false
		}
		list = append(list, h)
	}
	if *x == nil {
		*x = holds{}
	}
	(*x)[o] = list
	return true
}

// release ends the holds of o.
func (x *holds) release(r *registry.Registry, o *Outbound) {
	if len(*x) > 0 {
		releaseAll(r, (*x)[o])
		delete(*x, o)
	}
}

func releaseAll(r *registry.Registry, list []registry.Hold) {
	for _, h := range list {
		r.Release(h)
	}
}
