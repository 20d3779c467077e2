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
	runs, err := runsOf(all)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ended sync.WaitGroup
	for i, seat := range newCircle(len(runs)) {
		ended.Go(func() {
			defer seat.leave()
			if runs[i].err = seat.take(ctx); runs[i].err == nil {
				runs[i].report, runs[i].err = runs[i].opts.measure(ctx, seat)
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

// run is one cluster of a measurement. That of incast has two.
type run struct {
	opts   Options
	alone  bool // belongs to the run before: the same with one worker
	report *Report
	err    error
}

// runsOf completes options, and adds to an incast the worker that it is compared with.
func runsOf(all []Options) (runs []run, failed error) {
	for _, o := range all {
		o, err := o.complete()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		runs = append(runs, run{opts: o})
		if o.Workload == Incast {
			o.Workers = 1
			runs = append(runs, run{opts: o, alone: true})
		}
	}
	return runs, failed
}

// measure runs a cluster while it has its turn, and again and again.
func (o *Options) measure(ctx context.Context, s *seat) (*Report, error) {
	switch {
	case o.Workload == Start:
		return runStarts(ctx, o, s)
	case o.inside():
		return runInProcess(ctx, o, s)
	}
	return runProcesses(ctx, o, s)
}

func outcomes(runs []run) (out []Outcome) {
	for i, r := range runs {
		switch {
		case r.alone:
			last := &out[len(out)-1]
			if last.Err = errors.Join(last.Err, r.err); last.Err == nil {
				last.Report.againstOne(r.report)
			} else {
				last.Report = nil
			}
		default:
			out = append(out, Outcome{Report: runs[i].report, Err: r.err})
		}
	}
	return out
}

func newConductor(o *Options, s *seat) *conductor {
	return &conductor{opts: *o, seat: s, workers: make([]*line, o.Workers), servers: make([]*line, o.Servers)}
}
