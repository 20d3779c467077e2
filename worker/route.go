package worker

import (
	"sort"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// route cuts c into parts. Under w.mu.
func (w *Worker) route(c *call, r *Exchange, routing Routing) error {
	if len(w.servers) == 0 {
		return errs.Invalid("push_pull: the worker is not paired with any server yet; start the node first")
	}
	if routing == Broadcast {
		return w.broadcast(c)
	}
	return w.scatter(c, r)
}

// broadcast gives every server all pushes and its share of the pulls.
func (w *Worker) broadcast(c *call) error {
	c.broadcast = true
	servers := len(w.servers)
	if len(c.pull)%servers != 0 {
		return errs.Invalid("push_pull: %d pull tensors do not divide by %d servers; give each server as many, all of server 0 first", len(c.pull), servers)
	}
	each := len(c.pull) / servers
	for s, v := range w.servers {
		p := w.newPart(c, v)
		for i := range c.push {
			p.pushes = append(p.pushes, i)
		}
		for i := range each {
			p.pulls = append(p.pulls, s*each+i)
		}
	}
	return nil
}

// scatter gives each tensor to one server. A server without a tensor gets no part.
func (w *Worker) scatter(c *call, r *Exchange) error {
	for i, k := range c.pushKeys {
		v, err := w.target(k, r.PushTo, i)
		if err != nil {
			return err
		}
		p := w.partOf(c, v)
		p.pushes = append(p.pushes, i)
	}
	for i, k := range c.pullKeys {
		to := r.PullTo
		if r.PairWithPush {
			k, to = c.pushKeys[i], r.PushTo
		}
		v, err := w.target(k, to, i)
		if err != nil {
			return err
		}
		p := w.partOf(c, v)
		p.pulls = append(p.pulls, i)
	}
	return nil
}

// target returns the server of the i-th tensor: the named one, else the owner of k.
func (w *Worker) target(k tensor.Key, to []stepvan.Rank, i int) (*server, error) {
	switch len(to) {
	case 0:
		return w.servers[owner(k, w.servers)], nil
	case 1:
		i = 0
	}
	at := sort.Search(len(w.servers), func(j int) bool { return w.servers[j].rank >= to[i] })
	if at == len(w.servers) || w.servers[at].rank != to[i] {
		return nil, errs.Invalid("push_pull: server %d is named for key %d, but this worker is not paired with it", to[i], k)
	}
	return w.servers[at], nil
}

// partOf returns the part of c for v.
func (w *Worker) partOf(c *call, v *server) *part {
	for _, p := range c.parts {
		if p.server == v {
			return p
		}
	}
	return w.newPart(c, v)
}
