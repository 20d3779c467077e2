package demo

import (
	"io"
	"os"

	"github.com/stepvan/stepvan/internal/errs"
)

// Options of a demonstration.
type Options struct {
	Workers, Servers int
	ModelDir         string // of the model's files; "": the user's cache
	Query            string // the sentence whose nearest are shown
	Synthetic        bool   // no model: exchanges of Step-3's shapes
	Exchanges        int    // per worker, synthetic only
	Trace            string // file for the trace of the run
	Output           io.Writer
	Errors           io.Writer
	Color            bool
	Signals          <-chan os.Signal // stop the run; nil: none
}

// DefaultQuery has its answers among the shipped sentences.
const DefaultQuery = "a wealthy bachelor is looking for a bride"

// DefaultTrace is where the trace goes unless told otherwise; git ignores it.
const DefaultTrace = "stepvan-trace.json"

// maxTokens of a micro-batch: both sides must know it.
const maxTokens = 256

func (o *Options) check() error {
	switch {
	case o.Workers < 1 || o.Servers < 1:
		return errs.Invalid("a demo of %d workers and %d servers: at least one of each", o.Workers, o.Servers)
	case o.Synthetic && o.Exchanges < 1:
		return errs.Invalid("%d exchanges: at least one", o.Exchanges)
	}
	return nil
}
