package bench

import (
	"context"
	"errors"
	"sync"

	"github.com/stepvan/stepvan/internal/launch"
)

// Run measures. It blocks until all nodes have ended. The error joins the mistakes in
// the options, is that of launch.Run for processes, and the context's when ctx ends.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := RunTogether(ctx, o)
	if err != nil {
		return nil, err
	}
	return r[0].Report, r[0].Err
}

// Outcome is what came of a measurement: a report or an error.
type Outcome struct {
	Report *Report
	Err    error
}

// RunTogether takes several measurements at once, whose rounds alternate: so they are
// compared under the same conditions. While one is measured the nodes of the others wait. One that
// fails does not keep the others from going on; a signal, or the end of ctx, ends
// all. The outcomes are in the order of the options.
//
// The error is about all: mistakes in the options, of which nothing has been
// measured then, a signal, and the end of ctx.
func RunTogether(ctx context.Context, all ...Options) ([]Outcome, error) {
	runs, err := newRuns(all)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ended sync.WaitGroup
	for i, turn := range newRotation(len(runs)) {
		ended.Go(func() {
			defer turn.release()
			if runs[i].err = turn.acquire(ctx); runs[i].err == nil {
				runs[i].report, runs[i].err = runs[i].opts.measure(ctx, turn)
			}
			var interrupted *launch.Interrupted
			if errors.As(runs[i].err, &interrupted) {
				cancel(runs[i].err)
			}
		})
	}
	ended.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return outcomes(runs), nil
}

// run is one cluster.
type run struct {
	opts     Options
	base     *run // what it is compared with: an incast with the same of one worker, nodes in Python with the same in Go
	implicit bool // nobody asked for it: it is there to be compared with
	report   *Report
	err      error
}

// newRuns completes options, and adds what they are compared with unless it is among them.
func newRuns(all []Options) (runs []*run, failed error) {
	for _, o := range all {
		o, err := o.withDefaults()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		runs = append(runs, &run{opts: o})
	}
	for _, r := range runs {
		o, compared := r.opts.referenceOptions()
		if !compared {
			continue
		}
		for _, other := range runs {
			if o.sameMeasurement(&other.opts) {
				r.base = other
			}
		}
		if r.base == nil {
			r.base = &run{opts: o, implicit: true}
			runs = append(runs, r.base)
		}
	}
	return runs, failed
}

// referenceOptions is what a measurement is compared with, where that is another one.
func (o Options) referenceOptions() (Options, bool) {
	switch {
	case o.Nodes.Python():
		o.Nodes = GoNodes
	case o.Workload == Incast:
		o.Workers = 1
	default:
		return o, false
	}
	o.baseline = true
	return o, true
}

// alike tells whether two measurements are the same but for their limit.
func (o *Options) sameMeasurement(other *Options) bool {
	return o.String() == other.String() && o.Duration == other.Duration && o.Count == other.Count && o.Rounds == other.Rounds
}

// measure runs a cluster while it has its turn, and again and again.
func (o *Options) measure(ctx context.Context, t *turn) (*Report, error) {
	switch {
	case o.Workload == Start:
		return runStarts(ctx, o, t)
	case o.inOneProcess():
		return runInProcess(ctx, o, t)
	}
	return runProcesses(ctx, o, t)
}

func outcomes(runs []*run) (out []Outcome) {
	for _, r := range runs {
		if !r.implicit {
			out = append(out, r.outcome())
		}
	}
	return out
}

func (r *run) outcome() Outcome {
	if r.base == nil {
		return Outcome{Report: r.report, Err: r.err}
	}
	if err := errors.Join(r.err, r.base.err); err != nil {
		return Outcome{Err: err}
	}
	if r.opts.Nodes.Python() {
		r.report.compareWithGo(r.base.report)
	} else {
		r.report.compareWithOneWorker(r.base.report)
	}
	return Outcome{Report: r.report}
}

func newCoordinator(o *Options, t *turn) *coordinator {
	return &coordinator{opts: *o, turn: t, workers: make([]*controlConn, o.Workers), servers: make([]*controlConn, o.Servers)}
}
