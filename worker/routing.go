package worker

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// route makes the requests of x. Under Worker.mu.
func (w *Worker) route(x *activeExchange, e *Exchange, routing stepvan.Routing) error {
	if len(w.servers) == 0 {
		return errs.Invalid("push_pull: servers: the worker is not paired with any yet: start the node first")
	}
	if routing == stepvan.Broadcast {
		return w.exchanges.broadcast(x, w.servers)
	}
	return w.exchanges.scatter(x, w.servers, e)
}

// broadcast gives every server all pushes and its share of the pulls.
func (t *exchangeTable) broadcast(x *activeExchange, servers serverList) error {
	x.broadcast = true
	if len(x.pull)%len(servers) != 0 {
		return errs.Invalid("push_pull: pull tensors: wrong number for a broadcast (got %d, want a multiple of %d): give each server as many, all of the first server first", len(x.pull), len(servers))
	}
	each := len(x.pull) / len(servers)
	for s, v := range servers {
		r := t.addRequest(x, v)
		for i := range x.push {
			r.pushes = append(r.pushes, i)
		}
		for i := range each {
			r.pulls = append(r.pulls, s*each+i)
		}
	}
	return nil
}

// scatter gives each tensor to one server. A server without a tensor gets no request.
func (t *exchangeTable) scatter(x *activeExchange, servers serverList, e *Exchange) error {
	for i, k := range x.pushKeys {
		v, err := servers.choose(k, e.PushTo, i)
		if err != nil {
			return err
		}
		r := t.requestFor(x, v)
		r.pushes = append(r.pushes, i)
	}
	for i, k := range x.pullKeys {
		named := e.PullTo
		if e.PairWithPush {
			k, named = x.pushKeys[i], e.PushTo
		}
		v, err := servers.choose(k, named, i)
		if err != nil {
			return err
		}
		r := t.requestFor(x, v)
		r.pulls = append(r.pulls, i)
	}
	return nil
}

// serverList is the servers that a worker is paired with, by rank.
type serverList []*serverPeer

// String lists the ranks.
func (l serverList) String() string {
	ranks := make([]stepvan.Rank, len(l))
	for i, v := range l {
		ranks[i] = v.rank
	}
	return strings.Trim(fmt.Sprint(ranks), "[]")
}

// choose returns the server of the i-th tensor: the named one, else the owner of k.
func (l serverList) choose(k tensor.Key, named []stepvan.Rank, i int) (*serverPeer, error) {
	switch len(named) {
	case 0:
		return l.owner(k), nil
	case 1:
		i = 0
	}
	at := sort.Search(len(l), func(j int) bool { return l[j].rank >= named[i] })
	if at == len(l) || l[at].rank != named[i] {
		return nil, errs.Invalid("push_pull: key %d: this worker is not paired with the server that is named for it (got server %d, want one of %s): name one of these", k, named[i], l)
	}
	return l[at], nil
}

// owner returns the server that owns k: the one whose hash with the
// key is highest (rendezvous hashing, Thaler and Ravishankar 1998). Every
// worker finds the same server from the ranks alone. When a server joins or leaves, only
// the keys that it owns move.
func (l serverList) owner(k tensor.Key) *serverPeer {
	best, highest := l[0], hash(k, l[0].rank)
	for _, v := range l[1:] {
		if h := hash(k, v.rank); h > highest {
			best, highest = v, h
		}
	}
	return best
}

func hash(k tensor.Key, rank stepvan.Rank) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(k))
	binary.LittleEndian.PutUint64(b[8:], uint64(rank))
	return xxhash.Sum64(b[:])
}
