package postoffice

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// Admit vets a node that dials this one (link.Options.Admit), or that was dialled:
// it must be a peer of the view, in the life that the view knows, and not dead.
// The error is for both sides. It does not block. The scheduler lets workers know
// their servers only after the servers know their workers, so none comes too early.
func (f *Office) Admit(peer link.Identity) error {
	f.lock()
	defer f.unlock()
	name, self := printable(peer.Name, maxHost), f.self.Name()
	if name == "" {
		name = "a node without a name"
	}
	switch {
	case f.phase != officeJoined && f.epoch == 0:
		return fmt.Errorf("%s has not joined its cluster yet", self)
	case f.phase == officeOver && f.stop.begun.Load():
		return fmt.Errorf("%s has stopped%s", self, f.because())
	case peer.ID == 0:
		return fmt.Errorf("%s has not joined the cluster of %s: join it at the %s first", name, self, f.schedulerName())
	}
	s := f.states[peer.ID]
	switch {
	case s == nil:
		return fmt.Errorf("%s (node %d) is not a peer of %s: check DMLC_ROLE, DMLC_INSTANCE_ID and STEPVAN_PAIRING, and that both use the %s",
			name, peer.ID, self, f.schedulerName())
	case s.info.Incarnation != peer.Incarnation:
		return fmt.Errorf("%s is not the one that joined the cluster of %s: restart the cluster", s.info.Name(), self)
	case s.state != Alive:
		return fmt.Errorf("%s is %s for %s: %s", s.info.Name(), s.state, self, s.reason)
	}
	return nil
}

// because is why the office is over, when that is not its own Stop: who comes in vain shall
// not take this node for the cause.
func (f *Office) because() string {
	if f.cause == nil || errors.Is(f.cause, stepvan.ErrClosed) {
		return ""
	}
	return ": " + printable(f.cause.Error(), maxReason)
}
