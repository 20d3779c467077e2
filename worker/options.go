package worker

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/trace"
)

// Routing says which servers a request concerns.
type Routing uint8

// Routings.
const (
	// Default is, in a Request, the routing of the worker; for the worker, Broadcast.
	Default Routing = iota
	// Broadcast sends every push to every server. Pulls are server-major: with S
	// servers and P pulls of each, server s writes pull tensor s*P+i.
	Broadcast
	// ByKey sends each tensor to the owner of its key. Pulls are in plain order.
	ByKey
	// Named sends each tensor to the server that the request names for it, and to
	// the owner of its key where it names none. Pulls are in plain order.
	Named
)

// String is the routing's name in settings.
func (r Routing) String() string {
	switch r {
	case ByKey:
		return "key"
	case Named:
		return "named"
	}
	return "broadcast"
}

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

func (o *Options) setDefaults() {
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
