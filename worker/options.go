package worker

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/trace"
)

// Routing says which servers an exchange concerns: see [stepvan.Routing].
type Routing = stepvan.Routing

// Routings. Default is, in an Exchange, the routing of the worker; for the worker, Broadcast.
const (
	Default   = stepvan.DefaultRouting
	Broadcast = stepvan.Broadcast
	ByKey     = stepvan.ByKey
	Named     = stepvan.Named
)

// Defaults of Options.
const (
	DefaultHandles     = 65536
	DefaultOutstanding = 4096
	// DefaultInPlaceBytes is about where naming memory and looking at it there beats a copy.
	DefaultInPlaceBytes = 4096
)

// Options of a worker. Zero values mean the defaults.
type Options struct {
	Routing     Routing
	Handles     int // a finished handle stays valid until so many later ones have finished
	Outstanding int // requests without all answers; one more is stepvan.ErrWouldBlock
	// InPlaceBytes is the size of the largest push that is sent although the server could read it
	// where it is; negative: servers see no memory of this process.
	InPlaceBytes int
	// CheckBorrowed fails a handle when the program has changed a pushed tensor before the handle had finished. It costs two
	// readings of each.
	CheckBorrowed bool
	Files         Files       // that hold the tensors of the program; nil for the node's allocator
	Trace         *trace.Ring // receives the timestamps of every request; may be nil
	Log           zerolog.Logger
}

func (o *Options) complete() {
	if o.Routing == Default {
		o.Routing = Broadcast
	}
	if o.Handles <= 0 {
		o.Handles = DefaultHandles
	}
	if o.Outstanding <= 0 {
		o.Outstanding = DefaultOutstanding
	}
	if o.InPlaceBytes == 0 {
		o.InPlaceBytes = DefaultInPlaceBytes
	}
}

// Server is one that this worker is paired with.
type Server struct {
	Rank    stepvan.Rank
	Name    string // as a person knows it: "server 3"
	Session *link.Session
}
