package server

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// Policy says what a batch waits for: see [stepvan.Policy].
type Policy = stepvan.Policy

// Policies. Default is, in a call, the policy of the server; for the server, LockStep.
const (
	Default  = stepvan.DefaultPolicy
	LockStep = stepvan.LockStep
	AnyReady = stepvan.AnyReady
)

// AtLeast is the policy that waits for requests from k workers. k must be positive.
func AtLeast(k int) Policy { return stepvan.AtLeast(k) }

// Defaults of Options.
const (
	DefaultHandles   = 65536
	DefaultPoolLimit = 256 << 20
	DefaultPatience  = 10 * time.Second
)

// Options of a server. Zero values mean the defaults.
type Options struct {
	Policy    Policy        // of GetBatch where the call names none
	Handles   int           // an acknowledged Response stays valid until so many later ones are
	PoolLimit int64         // bytes that one request may have outside registered chunks
	Patience  time.Duration // how long RegisterRecvBuffer and Unregister wait for workers that live
	// CheckBorrowed fails a Response, and logs an error, when the program has changed a tensor before the Response was done. It
	// costs two readings of each.
	CheckBorrowed bool
	Memory        *tensor.Allocator // for pushes outside registered chunks; nil for the node's
	Trace         *trace.Ring       // receives the server's timestamps; may be nil
	Log           zerolog.Logger
}

func (o *Options) complete() {
	if o.Policy == Default {
		o.Policy = LockStep
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

// Worker is one that this server is paired with.
type Worker struct {
	Rank stepvan.Rank
	Name string      // as a person knows it: "worker 3"
	Node wire.PeerID // of the session that it will open
}
