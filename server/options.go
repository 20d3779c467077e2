package server

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// Defaults of Options.
const (
	DefaultHandles   = 65536
	DefaultPoolLimit = 256 << 20
	DefaultPatience  = 10 * time.Second
)

// Options of a server. Zero values mean the defaults.
type Options struct {
	Policy    stepvan.Policy // of GetBatch where the call names none; 0 is LockStep
	Handles   int            // how many acknowledged responses a Response outlives
	PoolLimit int64          // bytes that one request may have outside registered chunks
	Patience  time.Duration  // how long RegisterRecvBuffer and Unregister wait for workers that live
	// CheckBorrowed makes a Response fail, and logs an error, when the program changes a tensor before the Response is
	// done. The server reads each tensor twice for it.
	CheckBorrowed bool
	Copying       Copying           // which side copies responses over vans that share memory
	Caches        Caches            // of the cores of this machine, for CopyAuto
	Memory        *tensor.Allocator // for pushes outside registered chunks; nil means the transport's
	Files         Files             // that hold the tensors of the program; nil for the allocator of the transport
	Trace         *trace.Ring       // receives the server's timestamps; may be nil
	Log           zerolog.Logger
}

func (o *Options) setDefaults() {
	if o.Policy == stepvan.DefaultPolicy {
		o.Policy = stepvan.LockStep
	}
	if o.Handles <= 0 {
		o.Handles = DefaultHandles
	}
	if o.PoolLimit <= 0 {
		o.PoolLimit = DefaultPoolLimit
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
}

// Worker describes a worker that the server is paired with.
type Worker struct {
	Rank stepvan.Rank
	Name string      // for people: "worker 3"
	ID   wire.PeerID // of the peer that opens the worker's session
}
