package worker

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/trace"
)

// Defaults of Options.
const (
	DefaultHandles     = 65536
	DefaultOutstanding = 4096
	// DefaultInPlaceBytes is about the size from which reading a push in place is quicker than a copy.
	DefaultInPlaceBytes = 4096
)

// Options of a worker. The zero value of a field means its default.
type Options struct {
	Routing     stepvan.Routing // of exchanges that name none; "" is Broadcast
	Handles     int             // a finished handle stays valid until so many later ones have finished, and another exchange begins
	Outstanding int             // exchanges without all answers; one more is stepvan.ErrWouldBlock
	// InPlaceBytes is the size of the largest push that is sent although the server could read it, or a copy of it,
	// where it is. With a negative value servers reach no memory of this process.
	InPlaceBytes int
	// CheckBorrowed fails a handle when the program has changed a push tensor before the handle has completed. The
	// worker then reads each push tensor twice more.
	CheckBorrowed bool
	Files         Files       // that hold the tensors of the program; nil for the allocator of the transport
	Trace         *trace.Ring // receives the timestamps of every exchange; may be nil
	Log           zerolog.Logger
}

func (o *Options) setDefaults() {
	if o.Routing == stepvan.DefaultRouting {
		o.Routing = stepvan.Broadcast
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

// Server is a server that this worker is paired with.
type Server struct {
	Rank    stepvan.Rank
	Name    string // for people: "server 3"
	Session *link.Session
}
