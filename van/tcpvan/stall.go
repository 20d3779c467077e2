package tcpvan

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

// stallChecks is how many checks there are in Options.Stall.
const stallChecks = 16

// stall is how an endpoint waits for the rest of a message. Poll only.
type stall struct {
	got    uint64        // bytes read, of all rails
	seen   uint64        // of these, at the last check
	silent time.Duration // how long no byte has come
	waits  bool          // the last read wanted more than there was
}

// midway reports whether a message has begun and is not whole.
func (rd *reader) midway() bool { return rd.phase != phaseHead || rd.r != rd.w }

// noteWait notes that nothing more can be read for the present. Budget: a few comparisons.
func (rd *reader) noteWait() {
	rd.waits = true
	if v := rd.ep.v; v.opts.Stall > 0 && !v.poller.guarded && rd.midway() {
		v.guard()
	}
}

// guard has checkStalls look at all endpoints once, after checkTime. Poll only.
func (v *tcpVan) guard() {
	v.poller.guarded, v.poller.guardedSince = true, time.Now()
	v.silence.set(v.opts.checkTime())
}

func (o *Options) checkTime() time.Duration { return max(o.Stall/stallChecks, time.Millisecond) }

// checkStalls ends the endpoints whose peer went silent in the middle of a message. Poll only.
func (v *tcpVan) checkStalls() {
	if !v.silence.take() {
		return
	}
	v.poller.guarded = false
	// A process that was itself stopped takes little of that time for silence of others.
	lost, again := v.stalled(min(time.Since(v.poller.guardedSince), 2*v.opts.checkTime()))
	for _, ep := range lost {
		ep.lose(fmt.Errorf("%w: nothing came for %v in the middle of a message", stepvan.ErrPeerLost, v.opts.Stall))
	}
	if again {
		v.guard()
	}
}

// stalled checks all endpoints, a time of passed after the check before. It returns the endpoints whose
// peer was silent for too long (lost), and whether some endpoint waits for the rest of a message (again).
func (v *tcpVan) stalled(passed time.Duration) (lost []*endpoint, again bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for ep := range v.endpoints {
		s := &ep.rd.stall
		waits := s.waits && ep.rd.midway() && ep.state.Load()&ended == 0
		if !waits || s.got != s.seen {
			s.silent = 0
		} else if s.silent += passed; s.silent >= v.opts.Stall && !ep.rd.hasBytes() {
			lost = append(lost, ep)
		}
		s.seen = s.got
		again = again || waits
	}
	return lost, again
}

// hasBytes reports whether something came after the last read, which may be long ago.
func (rd *reader) hasBytes() bool {
	for i, c := range rd.ep.rails {
		if !rd.wants(i) {
			continue
		}
		if _, e := c.peek(); e != sys.Again {
			return true // or the end, which the next read finds
		}
	}
	return false
}
