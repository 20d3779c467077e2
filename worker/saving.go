package worker

import (
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// A push can be in memory that no server can map, and without a chunk. A server would then read it with
// process_vm_readv, at a quarter of the speed of a copy. So the worker copies such pushes to pooled memory, where the
// servers read them in place.

// smallestSaved and largestSaved limit the pushes that are copied. The copies of smaller ones gain too little. Those of
// larger ones wait for memory, and hold up the caller.
const smallestSaved, largestSaved = 128 << 10, 4 << 20

// savedPush is a push whose copy is lent instead. The region belongs to the exchange until no server reaches it.
type savedPush struct {
	push   int
	region *tensor.Region
}

// lendCopy returns how the server of r will reach a copy of push i, or the zero Target. All servers of an exchange
// share the copy, which copySaved makes.
func (r *request) lendCopy(l *lender, i int) link.Target {
	x := r.exchange
	b := x.push[i].Bytes()
	if len(b) < smallestSaved || len(b) > largestSaved {
		return link.Target{}
	}
	if _, ok := l.memory.Files.Locate(b); ok {
		return link.Target{} // it could be mapped, but there is no grant
	}
	for _, s := range x.saved {
		if s.push == i {
			return r.lend(s.region.Bytes()[:len(b)])
		}
	}
	region, err := l.pool.Get(len(b))
	if err != nil {
		return link.Target{} // the pool is full
	}
	t := r.lend(region.Bytes()[:len(b)])
	if t.Grant == 0 {
		l.pool.Put(region)
		return t
	}
	x.saved = append(x.saved, savedPush{i, region})
	return t
}

// copySaved fills the copies, unless a queue is full: then the exchange is refused anyway. Without Worker.mu.
func (x *activeExchange) copySaved() error {
	if len(x.saved) == 0 {
		return nil
	}
	if err := link.CheckRoom(x.sessions); err != nil {
		return err
	}
	for _, s := range x.saved {
		bulk.Copy(s.region.Bytes(), x.push[s.push].Bytes())
	}
	return nil
}

// release gives back the tensors and the copies. Under Worker.mu.
func (x *activeExchange) release(l *lender) {
	x.tensorLists.release()
	for i := range x.saved {
		l.pool.Put(x.saved[i].region)
		x.saved[i].region = nil
	}
	if x.staged != nil {
		x.staged.release(l)
	}
	x.saved = x.saved[:0]
}
