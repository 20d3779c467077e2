package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Plan is several groups of measurements. Those of a group alternate; groups follow each other.
type Plan [][]Options

// Watch observes the run of a plan. Run calls its functions one at a time; each may be nil.
type Watch struct {
	Begin func(names []string, done, all int) // a group begins, after done of all measurements
	Done  func(Outcome)                       // a measurement ended
}

// Check returns every mistake in the options of a plan, in the words of the flags.
func (p Plan) Check() error {
	var all []error
	seen := map[string]bool{}
	for _, o := range slices.Concat(p...) {
		o.setDefaults()
		for _, err := range o.mistakes() {
			if !seen[err.Error()] {
				seen[err.Error()] = true
				all = append(all, err)
			}
		}
	}
	return errors.Join(all...)
}

// Missing lists those measurements of another plan that this one lacks.
func (p Plan) Missing(other Plan) (out Plan) {
	known := map[string]bool{}
	for _, o := range slices.Concat(p...) {
		known[o.String()] = true
	}
	for _, group := range other {
		rest := slices.DeleteFunc(slices.Clone(group), func(o Options) bool { return known[o.String()] })
		if len(rest) > 0 {
			out = append(out, rest)
		}
	}
	return out
}

// Run measures all of a plan. Outcomes are in the order of the plan. After a measurement failed,
// the others still run. The error comes from RunTogether; Run then returns the outcomes of earlier
// groups.
func (p Plan) Run(ctx context.Context, w Watch) (all []Outcome, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	total := len(slices.Concat(p...))
	for _, group := range p.fitting(freeMemory()) {
		if w.Begin != nil {
			var names []string
			for i := range group {
				names = append(names, group[i].String())
			}
			w.Begin(names, len(all), total)
		}
		outcomes, err := runFitting(ctx, group)
		if err != nil {
			return all, err
		}
		for _, o := range outcomes {
			if w.Done != nil {
				w.Done(o)
			}
		}
		all = append(all, outcomes...)
	}
	return all, nil
}

// ErrTooLarge means that a measurement needs more memory than is free.
var ErrTooLarge = errors.New("not enough memory")

// runFitting refuses a measurement that needs more memory than is free. Otherwise the kernel might
// end a process.
func runFitting(ctx context.Context, group []Options) ([]Outcome, error) {
	free := freeMemory()
	if len(group) == 1 && free > 0 && group[0].memory() > free {
		o := &group[0]
		return []Outcome{{Name: o.String(), Err: fmt.Errorf("%w: %s needs %v and %v is free: make --push, --pull, --workers or --inflight smaller",
			ErrTooLarge, o, inMiB(o.memory()), inMiB(free))}}, nil
	}
	return RunTogether(ctx, group...)
}

// fitting divides groups that need more than the free memory. 0 means that the free memory is
// unknown.
func (p Plan) fitting(free int64) (out Plan) {
	for _, group := range p {
		var sum int64
		for i := range group {
			sum += group[i].memory()
		}
		if free == 0 || sum <= free {
			out = append(out, group)
			continue
		}
		for i := range group {
			out = append(out, group[i:i+1])
		}
	}
	return out
}

// inMiB rounds a size for people.
func inMiB(bytes int64) Size { return Size(bytes &^ (1<<20 - 1)) }
