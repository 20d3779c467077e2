package bench

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Workload batch measures the server alone. All requests have arrived before the server takes a batch, so
// it never waits. The workers push what they have in flight and meet the server at a barrier. Then the
// server takes and answers batch after batch, while the workers wait at a second barrier. They need no cores
// there. A machine with fewer cores than processes still gives them some, so the figure is the processor
// time of the server's thread.

// pushBatches pushes up to len(slots) batches before a barrier, again and again, until count
// batches are done.
func (w *worker) pushBatches(ctx context.Context, count int) error {
	for done := 0; done < count; done += len(w.slots) {
		slots := w.slots[:min(len(w.slots), count-done)]
		for i := range slots {
			if err := slots[i].begin(w.node); err != nil {
				return err
			}
		}
		for range 2 { // after all pushes; after all answers
			if err := w.node.Barrier(ctx, ps.Workers|ps.Servers, true); err != nil {
				return err
			}
		}
		for i := range slots {
			if err := slots[i].handle.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchAnswer is the answer to a batch: a buffer with rows for each worker.
type batchAnswer struct {
	buffer tensor.Tensor
	rows   []tensor.Tensor // one for each worker, of which the count of rows matters
	ids    []ps.RequestID
}

func (v *batchAnswer) allocate(n *ps.Node, o *Options) (err error) {
	if o.Workload != Batch {
		return nil
	}
	if v.buffer, err = n.Memory().Zeros(tensor.Uint8, int64(o.Pull)*int64(o.Workers)); err != nil {
		return err
	}
	for i := range o.Workers {
		row, err := v.buffer.Slice(int64(i)*int64(o.Pull), int64(i+1)*int64(o.Pull))
		if err != nil {
			return err
		}
		v.rows = append(v.rows, row)
	}
	v.ids = make([]ps.RequestID, o.Workers)
	return nil
}

// serveBatches takes and answers count batches that have arrived, and times each. Budget: 0
// allocations.
func (s *server) serveBatches(ctx context.Context, count int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for done := 0; done < count; {
		if err := s.node.Barrier(ctx, ps.Workers|ps.Servers, true); err != nil {
			return err
		}
		for range min(s.spec.Inflight, count-done) {
			began := threadTime()
			if err := s.node.GetBatchInto(ctx, s.policy, &s.batch); err != nil {
				return err
			}
			if err := s.answerBatch(false); err != nil {
				return err
			}
			s.times.add(threadTime() - began)
			done++
		}
		if err := s.node.Barrier(ctx, ps.Workers|ps.Servers, true); err != nil {
			return err
		}
	}
	return nil
}

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails for a wrong clock only
	return time.Duration(t.Nano())
}

// answerBatch answers a batch of all workers at once, with check according to what was pushed.
func (s *server) answerBatch(check bool) error {
	v := &s.batchAnswer
	for i, r := range s.batch.Requests {
		v.ids[i] = r.ID
		if !check {
			continue
		}
		pushed, err := r.In(0)
		if err != nil {
			return err
		}
		writeAnswer(v.rows[i].Bytes(), pushed.Bytes(), markOf(s.node.Rank(), s.spec))
	}
	_, err := s.node.RespondVec(v.buffer, v.rows, v.ids)
	return err
}
