package bench

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Workload batch is about the server alone: the requests of all workers are there when it takes a batch, so
// that nothing of its time is spent waiting. Workers push what they have in flight, a barrier tells
// that all have, and then the server takes and answers batch after batch. The workers wait at a further barrier
// until it has, so that they do not want cores meanwhile. With fewer cores than processes they get some all the
// same, whoever wakes up, so what counts is the processor time of the server's thread.

// feed has the requests of up to len(slots) batches be there at a barrier, again and again.
func (w *worker) pushBatches(ctx context.Context, count int) error {
	for done := 0; done < count; done += len(w.slots) {
		slots := w.slots[:min(len(w.slots), count-done)]
		for i := range slots {
			if err := slots[i].begin(w.node); err != nil {
				return err
			}
		}
		for range 2 { // all have pushed; all are answered
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

func (v *batchAnswer) allocate(n *ps.Node, s *spec) (err error) {
	if s.Workload != Batch {
		return nil
	}
	if v.buffer, err = n.Memory().Zeros(tensor.Uint8, s.Pull*int64(s.Workers)); err != nil {
		return err
	}
	for i := range s.Workers {
		row, err := v.buffer.Slice(int64(i)*s.Pull, int64(i+1)*s.Pull)
		if err != nil {
			return err
		}
		v.rows = append(v.rows, row)
	}
	v.ids = make([]ps.RequestID, s.Workers)
	return nil
}

// batches takes and answers count batches that are there, and times each. Budget: 0 allocations.
func (s *server) serveBatches(ctx context.Context, count int) error {
	s.times.reset()
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
		writeAnswer(v.rows[i].Bytes(), pushed.Bytes(), s.spec.mark(s.node.Rank()))
	}
	_, err := s.node.RespondVec(v.buffer, v.rows, v.ids)
	return err
}
