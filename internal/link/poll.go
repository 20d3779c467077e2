package link

import (
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/van"
)

// rest is how a van whose Poll costs system calls is spared while traffic goes over another: it is
// left out of more and more passes, up to some 40 us of polling.
type rest struct {
	length int // passes that it is left out after the next Poll without events
	left   int // passes still to be left out
}

const (
	shortRest = 16
	longRest  = 1024
	// eventPasses is for how many passes without events one with an event counts.
	eventPasses = 8
)

// take reports whether the van is left out of this pass.
func (r *rest) take() bool {
	if r.left <= 0 {
		return false
	}
	r.left--
	return true
}

// extend follows a Poll without events.
func (r *rest) extend() {
	r.length = min(longRest, max(shortRest, 2*r.length))
	r.left = r.length
}

// Poll implements progress.Source. Budget of a pass without events: one Poll of each quiet van; the
// others cost nanoseconds while traffic goes over quiet ones.
func (n *Transport) Poll(all bool) int {
	total := 0
	if n.doomCount.Load() > 0 {
		n.endDoomed()
		total++
	}
	if n.remindDue.Load() {
		n.remind()
	}
	for i := range n.vans {
		v := &n.vans[i]
		if !all && v.rest.take() {
			continue
		}
		k := n.pollVan(v, all)
		total += k
		n.arrange(v, k)
	}
	if len(n.losses.list) > 0 {
		total += n.settleLosses()
	}
	return total
}

func (n *Transport) pollVan(v *vanSlot, all bool) int {
	k := v.van.Poll(n.events[:], all)
	for j := range n.events[:k] {
		n.at = &n.events[j]
		n.dispatch(v, n.at)
		n.events[j] = van.Event{}
	}
	if k == 0 && v.mover != nil && v.mover.Moved() {
		return 1 // the middle of a large message is no time to yield or sleep
	}
	return k
}

// arrange decides how often vans that are not quiet are polled, after one Poll that found k events.
func (n *Transport) arrange(v *vanSlot, k int) {
	switch {
	case v.caps.Quiet && k > 0:
		n.viaQuiet = true
		for i := range n.vans {
			n.vans[i].rest.left -= eventPasses * k
		}
	case v.caps.Quiet:
	case k > 0:
		n.viaQuiet = false
		v.rest = rest{}
	case n.viaQuiet:
		v.rest.extend()
	}
}

// Arm implements progress.Source.
func (n *Transport) Arm() bool {
	for i := range n.vans {
		if !n.vans[i].van.Arm() {
			return false
		}
	}
	return n.doomCount.Load() == 0 && !n.remindDue.Load() // later ones come with a Kick
}

// FDs implements progress.Source.
func (n *Transport) FDs() []progress.Descriptor {
	var fds []progress.Descriptor
	for _, v := range n.vans {
		if fd := v.van.FD(); fd >= 0 {
			fds = append(fds, progress.Descriptor{FD: fd, Quiet: v.caps.Quiet})
		}
	}
	return fds
}
