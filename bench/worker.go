package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// worker is the program of a worker. One goroutine uses it.
type worker struct {
	node    *ps.Node
	spec    *Options
	slots   []slot
	end     slot
	bulk    slot
	servers []ps.Rank
	times   latencies
	seed    byte        // of the bytes of the last checked exchange
	asker   *work.Asker // nil: no work
}

// slot is the memory of one exchange at a time. Pulls are server-major.
type slot struct {
	push, pull         []tensor.Tensor
	pushKeys, pullKeys []tensor.Key
	handle             ps.Handle
	began              int64     // by trace.Now, a third of the cost of time.Now
	layer              time.Time // of afd3: when its last attention began
	task               work.Task
}

func newWorker(n *ps.Node, s *Options, times latencies) (*worker, error) {
	w := &worker{node: n, spec: s, times: times, slots: make([]slot, s.Inflight)}
	for _, p := range n.Peers() {
		w.servers = append(w.servers, ps.Rank(p.Rank))
	}
	if s.Work.Any() {
		w.asker = work.NewAsker(s.Work)
	}
	err := w.allocate(&w.end, s.endSlot(), 0, 1)
	for i := range w.slots {
		err = errors.Join(err, w.allocate(&w.slots[i], i, s.Push, s.Pull))
	}
	if s.Bulk > 0 {
		err = errors.Join(err, w.allocate(&w.bulk, s.bulkSlot(), 0, s.Bulk))
	}
	return w, err
}

// allocate makes the tensors of a slot, without a push when push is 0, and registers them with the
// worker.
func (w *worker) allocate(s *slot, number int, push, pull Size) error {
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

func (w *worker) tensor(size Size) (tensor.Tensor, error) {
	t, err := w.node.Memory().Zeros(tensor.Uint8, int64(size))
	if err == nil {
		_, err = w.node.Worker().Register(t)
	}
	return t, err
}

func (s *slot) begin(n *ps.Node) (err error) {
	s.began = trace.Now()
	s.handle, err = n.PushPull(s.push, s.pushKeys, s.pull, s.pullKeys)
	return err
}

// run does count exchanges, or what the workload has in their place, and times each.
func (w *worker) run(ctx context.Context, count int) error {
	switch w.spec.Workload {
	case AFD3:
		return w.pipeline(ctx, count)
	case Batch:
		return w.pushBatches(ctx, count)
	case Idle:
		return w.idle(ctx, count)
	}
	return w.exchange(ctx, count)
}

// exchange keeps slots in flight until count exchanges are done.
func (w *worker) exchange(ctx context.Context, count int) error {
	for begun, done := 0, 0; done < count; done++ {
		if err := w.keepBulk(); err != nil {
			return err
		}
		for begun < count && begun-done < len(w.slots) {
			err := w.begin(&w.slots[begun%len(w.slots)])
			if errors.Is(err, stepvan.ErrWouldBlock) && begun > done {
				break // exchanges in flight will make room
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
		if err := w.read(s); err != nil {
			return err
		}
		w.times.add(time.Duration(trace.Now()-s.began) - s.task.Think)
	}
	return nil
}

// read reads the answers, when that is part of the work.
func (w *worker) read(s *slot) error {
	if w.asker == nil {
		return nil
	}
	for i, t := range s.pull {
		if err := w.asker.Read(s.task, t.Bytes()); err != nil {
			return fmt.Errorf("server %d: %w", w.servers[i], err)
		}
	}
	return nil
}

// begin begins an exchange with its work.
func (w *worker) begin(s *slot) (err error) {
	if w.asker == nil {
		return s.begin(w.node)
	}
	s.began = trace.Now()
	s.task = w.asker.Write(s.push[0].Bytes())
	s.handle, err = w.node.PushPull(s.push, s.pushKeys, s.pull, s.pullKeys)
	return err
}

// keepBulk begins the bulk transfer when it is not in flight.
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

// finish waits for the bulk transfer, and sends the servers the end of the round.
func (w *worker) finish(ctx context.Context) error {
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

// check runs count exchanges of each slot, one after the other, with bytes of their own, and
// compares the answers.
func (w *worker) check(ctx context.Context, count int) error {
	for range count {
		for i := range w.slots {
			if err := w.checkSlot(ctx, &w.slots[i]); err != nil {
				return err
			}
		}
	}
	return nil
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
		if at := firstWrong(t.Bytes(), pushed, markOf(w.servers[i], w.spec)); at >= 0 {
			return fmt.Errorf("byte %d of the answer of server %d is wrong", at, w.servers[i])
		}
	}
	return nil
}
