package peer

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/wire"
)

// Options make a [Service]. Zero values stand for the defaults.
type Options struct {
	Handles     int // finished handles that stay valid; 4096
	Outstanding int // transfers with one peer that have not completed; 4096
	Movers      int // goroutines that copy memory; 1
	// Files knows the memory files that peers may be granted. nil: those of the transport.
	Files files.Files
	// Dial opens a session with another peer of the cluster. Goroutines of this package call it.
	Dial  func(ctx context.Context, rank stepvan.Rank) (*link.Session, error)
	Dials int // that may be in flight at once; 8
	// HeadStart is how long a peer leaves it to one with a lower rank to dial, unless an operation waits; 100 ms.
	HeadStart time.Duration
	// Redial is how long the session with a peer may take to open in place of one that broke; 1.5 s.
	Redial time.Duration
	// Recover is deferred by the goroutines of this package, to handle a panic there. nil: a panic ends the process.
	Recover func()
	Log     zerolog.Logger
}

const (
	defaultHandles     = 4096
	defaultOutstanding = 4096
	defaultDials       = 8
	defaultHeadStart   = 100 * time.Millisecond
	// defaultRedial leaves time to tell of a peer that lives and cannot be reached as soon as of one that has died.
	defaultRedial = 1500 * time.Millisecond
)

func (o *Options) setDefaults(t *link.Transport) {
	if o.Handles == 0 {
		o.Handles = defaultHandles
	}
	if o.Outstanding == 0 {
		o.Outstanding = defaultOutstanding
	}
	if o.Files == nil {
		o.Files = t.Memory()
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	if o.Dials == 0 {
		o.Dials = defaultDials
	}
	if o.HeadStart == 0 {
		o.HeadStart = defaultHeadStart
	}
	if o.Redial == 0 {
		o.Redial = defaultRedial
	}
	o.Movers = max(o.Movers, 1)
}

// Member is what a peer knows of each peer of its cluster, itself included.
type Member struct {
	Rank stepvan.Rank
	Name string // for people: "peer 3"
	Host string // the machine that it runs on, for people
	ID   wire.PeerID
	// Machine is the same at peers that share memory with each other; "" at a peer that shares none. It is what the
	// peer itself says. A wrong one makes plans with replicas slower, and nothing else.
	Machine string
}
