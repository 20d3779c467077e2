package rdma

import (
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// Counts is what tests of other packages want to know of a van.
type Counts struct {
	verbs.Counters                            // of all its endpoints
	Written, Fetched, Staged, Streamed uint64 // as in van.Counters
	Grants                             int    // of this side that are not withdrawn
	Regions                            int    // that are registered
}

// CountsOf adds up the counters of all endpoints of the vans.
func CountsOf(vans ...van.Van) (sum Counts) {
	for _, v := range vans {
		_, regions := v.(Registered).Registered()
		sum.Regions += regions
		for _, r := range v.(*rdmaVan).members.all(func(*rail) bool { return true }) {
			sum.add(r)
		}
	}
	return sum
}

func (c *Counts) add(r *rail) {
	q := r.conn.qp.Counters()
	c.Doorbells += q.Doorbells
	c.Requests += q.Requests
	c.Signaled += q.Signaled
	c.Reads += q.Reads
	c.Bytes += q.Bytes
	c.ReceiveDoorbells += q.ReceiveDoorbells
	c.Receives += q.Receives
	if r.index > 0 {
		return // the grants are the endpoint's
	}
	moved := r.e.Counters()
	c.Written += moved.Written
	c.Fetched += moved.Fetched
	c.Staged += moved.Staged
	c.Streamed += moved.Streamed
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	c.Grants += len(r.e.out.grants.byID)
}

// Since is what was added since before.
func (c Counts) Since(before Counts) Counts {
	c.Doorbells -= before.Doorbells
	c.Requests -= before.Requests
	c.Signaled -= before.Signaled
	c.Reads -= before.Reads
	c.Bytes -= before.Bytes
	c.ReceiveDoorbells -= before.ReceiveDoorbells
	c.Receives -= before.Receives
	c.Written -= before.Written
	c.Fetched -= before.Fetched
	c.Staged -= before.Staged
	c.Streamed -= before.Streamed
	c.Grants -= before.Grants
	c.Regions -= before.Regions
	return c
}
