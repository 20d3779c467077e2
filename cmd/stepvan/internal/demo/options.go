package demo

import (
	"io"
	"os"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/launch"
)

// Options describe a demonstration.
type Options struct {
	Workers, Servers int
	ModelDir         string         // folder of the model's files; "": the user's cache
	Query            string         // the report lists the sentences nearest to this one
	Synthetic        bool           // no model: exchanges of Step-3's shapes
	Exchanges        int            // of each worker; synthetic only
	Trace            string         // file for the trace of the run
	Self             launch.Program // runs stepvan
	Output           io.Writer
	Errors           io.Writer
	Color            bool
	Signals          <-chan os.Signal // stop the run; nil: none
}

// DefaultQuery has near sentences among those that ship with the example.
const DefaultQuery = "a wealthy bachelor is looking for a bride"

// DefaultTrace is the default file of the trace. Git ignores it.
const DefaultTrace = "stepvan-trace.json"

func (o *Options) check() error {
	switch {
	case o.Workers < 1 || o.Servers < 1:
		return errs.Invalid("demo: too few processes (got %d workers and %d servers, want 1 or more of each)", o.Workers, o.Servers)
	case o.Synthetic && o.Exchanges < 1:
		return errs.Invalid("demo: too few exchanges (got %d, want 1 or more)", o.Exchanges)
	}
	return nil
}
