package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// worker is the program of a worker. One goroutine.
type worker struct {
	node    *ps.Node
	spec    *spec
	slots   []slot
	end     slot
	bulk    slot
	servers []ps.Rank
	times   latencies
	seed    byte // of the bytes of the last checked exchange
}

// slot is the memory of one exchange at a time. Pulls are server-major.
type slot struct {
	push, pull         []tensor.Tensor
	pushKeys, pullKeys []tensor.Key
	handle             ps.Handle
	began              time.Time
}

func newWorker(n *ps.Node, s *spec) (*worker, error) {
	w := &worker{node: n, spec: s, times: newLatencies(), slots: make([]slot, s.Inflight)}
	for _, p := range n.Peers() {
		w.servers = append(w.servers, ps.Rank(p.Rank))
	}
	err := w.fill(&w.end, s.endSlot(), 0, 1)
	for i := range w.slots {
		err = errors.Join(err, w.fill(&w.slots[i], i, s.Push, s.Pull))
	}
	if s.Bulk > 0 {
		err = errors.Join(err, w.fill(&w.bulk, s.bulkSlot(), 0, s.Bulk))
	}
	return w, err
}

// fill allocates the tensors of a slot, without push when push is 0, and has the worker
// keep them.
func (w *worker) fill(s *slot, number int, push, pull int64) error {
	rank := w.node.Rank()
	if push > 0 {
		t, err := w.tensor(push)
		if err != nil {
			return err
		}
		s.push, s.pushKeys = []tensor.Tensor{t}, []tensor.Key{pushKey(rank, number)}
	}
	for range w.servers {
		t, err := w.tensor(pull)
		if err != nil {
			return err
		}
		s.pull, s.pullKeys = append(s.pull, t), append(s.pullKeys, pullKey(rank, number))
	}
	return nil
}

func (w *worker) tensor(size int64) (tensor.Tensor, error) {
	t, err := w.node.Memory().Zeros(tensor.Uint8, size)
	if err == nil {
		_, err = w.node.Worker().Register(t)
	}
	return t, err
}

func (s *slot) begin(n *ps.Node) (err error) {
	s.began = time.Now()
	s.handle, err = n.PushPull(s.push, s.pushKeys, s.pull, s.pullKeys)
	return err
}

// measure runs count exchanges, several at a time, and times each. Budget: 0 allocations.
func (w *worker) measure(ctx context.Context, count int) (*reply, error) {
	w.times.reset()
	start := used()
	err := w.exchange(ctx, count)
	r := &reply{}
	start.since(r)
	if err == nil {
		err = w.finishRound(ctx)
	}
	if err == nil {
		r.Latencies, err = w.times.encode()
	}
	return r, err
}

// exchange keeps slots in flight until count exchanges are done.
func (w *worker) exchange(ctx context.Context, count int) error {
	for begun, done := 0, 0; done < count; done++ {
		if err := w.keepBulk(); err != nil {
			return err
		}
		for begun < count && begun-done < len(w.slots) {
			err := w.slots[begun%len(w.slots)].begin(w.node)
			if errors.Is(err, ps.ErrWouldBlock) && begun > done {
				break // what is in flight makes room
			}
			if err != nil {
				return err
			}
			begun++
		}
		s := &w.slots[done%len(w.slots)]
		if err := s.handle.Wait(ctx); err != nil {
			return err
		}
		w.times.add(time.Since(s.began))
	}
	return nil
}

// keepBulk begins the bulk transfer when none is in flight.
func (w *worker) keepBulk() error {
	if w.spec.Bulk == 0 || w.bulk.handle != (ps.Handle{}) && !w.bulk.handle.Done() {
		return nil
	}
	if w.bulk.handle != (ps.Handle{}) {
		if err := w.bulk.handle.Err(); err != nil {
			return err
		}
	}
	return w.bulk.begin(w.node)
}

// finishRound waits for the bulk and tells the servers that no more comes.
func (w *worker) finishRound(ctx context.Context) error {
	if w.bulk.handle != (ps.Handle{}) {
		if err := w.bulk.handle.Wait(ctx); err != nil {
			return err
		}
	}
	if err := w.end.begin(w.node); err != nil {
		return err
	}
	return w.end.handle.Wait(ctx)
}

// check runs count exchanges of each slot, one after the other, with bytes of their own, and looks at what comes back.
func (w *worker) check(ctx context.Context, count int) error {
	for range count {
		for i := range w.slots {
			if err := w.checkSlot(ctx, &w.slots[i]); err != nil {
				return err
			}
		}
	}
	return w.finishRound(ctx)
}

func (w *worker) checkSlot(ctx context.Context, s *slot) error {
	w.seed++
	pushed := s.push[0].Bytes()
	for i := range pushed {
		pushed[i] = w.seed + byte(i) + byte(i>>8)
	}
	for _, t := range s.pull {
		clear(t.Bytes())
	}
	if err := s.begin(w.node); err != nil {
		return err
	}
	if err := s.handle.Wait(ctx); err != nil {
		return err
	}
	for i, t := range s.pull {
		want := w.spec.mark(w.servers[i])
		if at := firstWrong(t.Bytes(), pushed, want); at >= 0 {
			return fmt.Errorf("%s: server %d answered byte %d with %d, want %d", w.node, w.servers[i], at, t.Bytes()[at], pushed[at%len(pushed)]+want)
		}
	}
	return nil
}

// mark is what a server adds to each pushed byte in its answer.
func (s *spec) mark(server ps.Rank) byte {
	if s.Workload == Echo {
		return 0
	}
	return byte(server) + 1
}

// answerTo computes the answer to what was pushed: its bytes again and again, each with mark added.
func answerTo(dst, pushed []byte, mark byte) {
	for len(dst) > 0 {
		n := min(len(dst), len(pushed))
		for i, b := range pushed[:n] {
			dst[i] = b + mark
		}
		dst = dst[n:]
	}
}

// firstWrong compares an answer with answerTo; -1 says that all is well.
func firstWrong(got, pushed []byte, mark byte) int {
	for start := 0; start < len(got); start += len(pushed) {
		for i := range min(len(pushed), len(got)-start) {
			if got[start+i] != pushed[i]+mark {
				return start + i
			}
		}
	}
	return -1
}
