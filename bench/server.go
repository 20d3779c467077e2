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
)

// server is the program of a server. One goroutine.
type server struct {
	node        *ps.Node
	spec        *Options
	policy      ps.Policy
	echoes      bool // the answers are the tensors of the pushes
	batch       ps.Batch
	answers     [][]tensor.Tensor // by worker rank and slot; echo puts the pushed tensor there
	end         []tensor.Tensor
	bulk        []tensor.Tensor
	last        ps.Response
	ended       int // workers that have ended the round
	batchAnswer batchAnswer
	times       latencies // of workload batch
	work        work.Spec
	computed    time.Duration // processor time of the work of a round, beside a busy program
}

func newServer(n *ps.Node, o *Options, times latencies) (*server, error) {
	t := o.traits()
	s := &server{node: n, spec: o, policy: ps.AnyReady, echoes: t.echoes && !o.Work.Fresh, times: times, work: o.Work}
	if t.lockStep {
		s.policy = ps.LockStep
	}
	return s, errors.Join(s.register(), s.allocate(), s.batchAnswer.allocate(n, o))
}

// zeros allocates bytes.
func (s *server) zeros(size Size) (tensor.Tensor, error) {
	return s.node.Memory().Zeros(tensor.Uint8, int64(size))
}

// register registers a chunk for every push. With --in-place pushes stay in the worker's memory.
func (s *server) register() error {
	if s.spec.InPlace {
		return nil
	}
	var ranks []ps.Rank
	var keys []tensor.Key
	for _, p := range s.node.Peers() {
		for i := range s.spec.Inflight {
			ranks, keys = append(ranks, ps.Rank(p.Rank)), append(keys, pushKey(ps.Rank(p.Rank), i))
		}
	}
	all, err := s.zeros(s.spec.Push * Size(len(keys)))
	if err == nil {
		_, err = s.node.RegisterRecvBuffer(all, ranks, keys)
	}
	return err
}

// allocate makes the answers.
func (s *server) allocate() (failed error) {
	one := func(size Size) []tensor.Tensor {
		t, err := s.zeros(size)
		failed = errors.Join(failed, err)
		return []tensor.Tensor{t}
	}
	s.answers = make([][]tensor.Tensor, s.spec.Workers*s.spec.Inflight)
	for i := range s.answers {
		if s.echoes || s.spec.InPlace {
			s.answers[i] = make([]tensor.Tensor, 1)
		} else {
			s.answers[i] = one(s.spec.Pull)
		}
	}
	s.end = one(1)
	if s.spec.Bulk > 0 {
		s.bulk = one(s.spec.Bulk)
	}
	return failed
}

// check serves with answers that depend on the pushed bytes.
func (s *server) check(ctx context.Context, _ int) error { return s.serve(ctx, true) }

// run serves a round.
func (s *server) run(ctx context.Context, count int) error {
	s.computed = 0
	if s.spec.Workload == Batch {
		if err := s.serveBatches(ctx, count); err != nil {
			return err
		}
	}
	return s.serve(ctx, false)
}

// finish has nothing to do: a round ends with the last request of each worker.
func (s *server) finish(context.Context) error { return nil }

// serve answers until every worker has ended the round. With check it computes the answers from the
// pushes, otherwise it sends the memory as it is. Budget: 0 allocations.
func (s *server) serve(ctx context.Context, check bool) error {
	workers := len(s.node.Peers())
	for s.ended = 0; s.ended < workers; {
		if err := s.node.GetBatchInto(ctx, s.policy, &s.batch); err != nil {
			return err
		}
		if s.spec.Compute > 0 && !s.ends() {
			compute(s.spec.Compute)
		}
		if s.spec.Workload == Batch && !s.ends() {
			if err := s.answerBatch(check); err != nil {
				return err
			}
			continue
		}
		for _, r := range s.batch.Requests {
			answer, err := s.answer(r, check)
			if err != nil {
				return err
			}
			if err := s.respond(ctx, answer, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends reports whether the workers end the round with this batch.
func (s *server) ends() bool {
	pulls := s.batch.Requests[0].Pulls()
	return len(pulls) == 1 && slotOf(pulls[0].Key) == s.spec.endSlot()
}

// answer finds the tensors to send.
func (s *server) answer(r ps.Request, check bool) ([]tensor.Tensor, error) {
	pushes, pulls := r.PushKeys(), r.Pulls() // Pushes would copy pushes in place
	if len(pulls) != 1 || int(r.Worker) >= s.spec.Workers {
		return nil, fmt.Errorf("a request of worker %d with %d pulls, want one", r.Worker, len(pulls))
	}
	switch slot := slotOf(pulls[0].Key); {
	case slot == s.spec.endSlot():
		s.ended++
		return s.end, nil
	case slot == s.spec.bulkSlot() && s.bulk != nil:
		return s.bulk, nil
	case slot < s.spec.Inflight && len(pushes) == 1:
		answer := s.answers[int(r.Worker)*s.spec.Inflight+slot]
		return answer, s.fill(answer, r, check)
	}
	return nil, fmt.Errorf("a request of worker %d that no worker sends: %d pushes, pull key %#x", r.Worker, len(pushes), pulls[0].Key)
}

// fill makes the answer to a push: in the worker's memory, in the server's own, or the push itself.
func (s *server) fill(answer []tensor.Tensor, r ps.Request, check bool) (err error) {
	pushed, err := r.In(0)
	switch {
	case err != nil:
		return err
	case s.spec.InPlace:
		answer[0], err = r.Out(0)
	case s.echoes:
		answer[0] = pushed
	}
	switch {
	case err != nil:
		return err
	case check && !s.echoes:
		writeAnswer(answer[0].Bytes(), pushed.Bytes(), markOf(s.node.Rank(), s.spec))
	case !check && s.work.Any():
		return s.doWork(pushed.Bytes(), answer[0].Bytes())
	}
	return nil
}

// doWork does the work between push and answer. Beside a busy program it measures its processor time: the program may
// lose it.
func (s *server) doWork(pushed, answer []byte) error {
	if !s.spec.Cores.Busy {
		return s.work.Answer(pushed, answer)
	}
	began, before := time.Now(), threadTime()
	err := s.work.Answer(pushed, answer)
	spent := threadTime() - before // of two threads, if Go's runtime has moved the goroutine
	s.computed += min(max(spent, 0), time.Since(began))
	return err
}

// respond sends. When the queue is full it waits for the response before.
func (s *server) respond(ctx context.Context, answer []tensor.Tensor, h ps.RequestID) error {
	for {
		sent, err := s.node.Respond(answer, h)
		if err == nil {
			s.last = sent
			return nil
		}
		if !errors.Is(err, stepvan.ErrWouldBlock) || s.last == (ps.Response{}) || s.last.Done() {
			return err
		}
		if err := s.last.Wait(ctx); err != nil {
			return err
		}
	}
}
