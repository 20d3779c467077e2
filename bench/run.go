package bench

import (
	"context"
	"errors"
	"sync"

	"github.com/stepvan/stepvan/internal/launch"
)

// Run measures, and returns after all nodes have ended. The error joins the mistakes in the
// options, comes from launch.Run, or is the cause of the end of ctx.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := RunTogether(ctx, o)
	if err != nil {
		return nil, err
	}
	return r[0].Report, r[0].Err
}

// Outcome is the report or the error of a measurement.
type Outcome struct {
	Name   string // of the Options
	Report *Report
	Err    error
}

// RunTogether runs several measurements whose rounds alternate, so that they meet the same
// conditions. While one measures, the nodes of the others wait. After one fails, the others still
// run. A signal, or the end of ctx, ends all. The outcomes are in the order of the options.
//
// The error concerns all measurements: mistakes in the options, a signal, or the end of ctx. After
// mistakes nothing was measured.
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

// run is the measurement of one cluster.
type run struct {
	opts     Options
	base     *run // the measurement to compare with; nil: none
	implicit bool // added only for the comparison
	report   *Report
	err      error
}

// newRuns sets defaults, and adds the measurements for comparison that are missing.
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
			if other.measures(&o) {
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

// referenceOptions is the measurement to compare with: for nodes in Python the same in Go, for
// incast the same with one worker. Other measurements have none.
func (o Options) referenceOptions() (Options, bool) {
	switch {
	case o.comparesWithGo():
		o.Nodes = GoNodes
	case o.Workload == Incast:
		o.Workers = 1
	default:
		return o, false
	}
	o.baseline = true
	return o, true
}

// comparesWithGo reports whether the limit is the same between Go nodes. The time of idle nodes means nothing. Where
// the nodes do not have the cores for themselves, other figures count.
func (o *Options) comparesWithGo() bool {
	return o.Nodes.Python() && o.Workload != Idle && !o.Cores.shared()
}

// measures reports whether the run measures what the options say, perhaps with another limit.
func (r *run) measures(o *Options) bool {
	own := &r.opts
	return own.String() == o.String() && own.Duration == o.Duration && own.Count == o.Count && own.Rounds == o.Rounds
}

// measure runs a cluster. It has the turn when it begins, and yields it between rounds.
func (o *Options) measure(ctx context.Context, t *turn) (*Report, error) {
	if o.Workload == Start {
		return runStarts(ctx, o, t)
	}
	return runCluster(ctx, o, t)
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
	out := Outcome{Name: r.opts.String(), Report: r.report, Err: r.err}
	if r.base == nil {
		return out
	}
	if out.Err = errors.Join(r.err, r.base.err); out.Err != nil {
		out.Report = nil
	} else {
		r.report.compareWith(r.base.report)
	}
	return out
}
