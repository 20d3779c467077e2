package postoffice

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
)

// Admit vets an instance that dials this one (link.Options.Admit), or that this one has dialled. The instance must be a
// peer of the view, in the life that the view knows, and not dead. The error is for both sides. Admit does not block.
// The scheduler tells workers of their servers only after the servers know their workers, so no worker comes too early.
func (f *Office) Admit(peer link.Identity) error {
	f.lock()
	defer f.unlock()
	name, self := text.Line(peer.Name, maxHost), f.self.Name()
	if name == "" {
		name = "a node without a name"
	}
	switch {
	case f.phase != officeJoined && f.view.epoch == 0:
		return fmt.Errorf("%s has not joined its cluster yet", self)
	case f.phase == officeOver && f.stop.begun.Load():
		return fmt.Errorf("%s has stopped%s", self, becauseOf(f.cause))
	case peer.ID == 0:
		return fmt.Errorf("%s has not joined the cluster of %s: join it at the %s first", name, self, f.schedulerName())
	}
	return f.view.admit(peer, name, self, f.schedulerName())
}

// becauseOf tells why an office is over, when that is not its own Stop. A peer that is refused must not take this
// instance for the cause.
func becauseOf(cause error) string {
	if cause == nil || errors.Is(cause, stepvan.ErrClosed) {
		return ""
	}
	return ": " + text.Line(cause.Error(), maxReason)
}
