package worker

import "github.com/stepvan/stepvan/trace"

// result is what a handle tells once its call has completed.
type result struct {
	label    string
	call     *call // whose result this is; nil once it has completed. Under Worker.mu
	pushes   int
	pulls    int     // per server
	variable bool    // lengths are known
	lengths  []int64 // bytes received, per pull tensor
	last     trace.Stamps
	each     []trace.Stamps // per server, when there are several
}

// prepare readies a result that another call used before.
func (r *result) prepare(c *call) {
	r.label, r.call, r.pushes, r.pulls = c.label, c, len(c.push), len(c.pull)
	if r.variable = len(c.variable) > 0; r.variable {
		r.lengths = append(r.lengths[:0], make([]int64, len(c.pull))...)
	}
	r.each = r.each[:0]
}

// record takes what c leaves behind.
func (r *result) record(c *call) {
	if c.broadcast {
		r.pulls /= len(c.parts)
	}
	for _, p := range c.parts {
		p.stamps[trace.RequestStart] = c.start
		if len(c.parts) > 1 {
			r.each = append(r.each, p.stamps)
		}
	}
	r.last = c.last.stamps
}
