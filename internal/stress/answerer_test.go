package stress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// answerer is a server's program. It checks every byte of every push, and that no push is missing,
// late or double. It answers every pull with a page of its own.
type answerer struct {
	node       *ps.Node
	work       *work
	report     sink
	book       *book
	seen       map[tensor.Key]uint64 // sequence numbers of each push key
	answers    []*answer             // oldest first
	buffers    []tensor.Tensor       // registered
	out        []tensor.Tensor       // of the answer in place that is being written
	unanswered []ps.RequestID        // when a loss has ended the cluster
	group      sync.WaitGroup
}

// answer is the memory of one response.
type answer struct {
	tensors  []tensor.Tensor
	whole    tensor.Tensor // of mixed sizes: the memory that the only tensor is cut from
	response ps.Response
	free     bool // no worker holds it
}

// answersEach are those that one worker may have on their way: the last one, until it is acknowledged, and the next.
const answersEach = 2

// newAnswerer registers a buffer for what each worker pushes to placed keys.
func newAnswerer(n *ps.Node, w *work, report sink) (*answerer, error) {
	a := &answerer{node: n, work: w, report: report, book: newBook(w.largest()), seen: map[tensor.Key]uint64{}}
	for range answersEach * len(n.Peers()) {
		o := &answer{free: true}
		a.answers = append(a.answers, o)
		if err := a.fit(o, 0, w.Loads[0].Pull); err != nil {
			return a, err
		}
		clear(o.tensors[0].Bytes()) // touches its pages at the start
	}
	lane := allServers
	if w.Apart {
		lane = int(n.Server().Rank())
	}
	for i, l := range w.Loads {
		var ranks []ps.Rank
		var keys []tensor.Key
		for _, p := range n.Peers() {
			r := ps.Rank(p.Rank)
			ranks, keys = append(ranks, r), append(keys, keyOf(r, lane, i, placedKey))
		}
		buf, err := n.Memory().Empty(tensor.Uint8, int64(len(ranks))*l.Placed)
		if err != nil {
			return a, err
		}
		a.buffers = append(a.buffers, buf)
		if _, err = n.RegisterRecvBuffer(buf, ranks, keys); err != nil {
			return a, err
		}
	}
	return a, nil
}

// start serves until the workers have stopped, a loss ends the cluster, or ctx ends.
func (a *answerer) start(ctx context.Context, over func()) {
	a.group.Go(func() {
		defer over()
		switch err := a.serve(ctx); {
		case ctx.Err() != nil:
		case errors.Is(err, stepvan.ErrPeerLost):
			a.report(event{Kind: evLost, Text: err.Error()})
		case !errors.Is(err, stepvan.ErrClosed):
			a.report(event{Kind: evWrong, Text: "serving: " + err.Error()})
		}
	})
}

// serve answers all batches. 0 allocations in the steady state.
func (a *answerer) serve(ctx context.Context) error {
	policy := ps.LockStep
	if a.work.Apart {
		policy = ps.AnyReady
	}
	var batch ps.Batch
	for {
		if err := a.node.GetBatchInto(ctx, policy, &batch); err != nil {
			return err
		}
		for i, r := range batch.Requests {
			if err := a.answer(ctx, r); err != nil {
				for _, r := range batch.Requests[i:] {
					a.unanswered = append(a.unanswered, r.ID)
				}
				return err
			}
		}
	}
}

func (a *answerer) answer(ctx context.Context, r ps.Request) error {
	keys := r.PushKeys()
	var seq uint64
	for i, t := range r.Pushes() {
		a.seen[keys[i]]++
		seq = a.seen[keys[i]]
		if err := a.book.check(label{workerID(r.Worker), uint64(keys[i]), seq}, t.Bytes()); err != nil {
			a.report(event{Kind: evWrong, Text: fmt.Sprintf("%s, push of worker %d: %v", a.node, r.Worker, err)})
		}
	}
	if seq%2 == 0 {
		return a.inPlace(r, seq)
	}
	out, err := a.take(ctx)
	if err != nil {
		return err
	}
	for i, p := range r.Pulls() {
		if err := a.fit(out, i, p.Bytes); err != nil {
			return err
		}
		a.write(out.tensors[i], p, seq)
	}
	out.response, err = a.node.Respond(out.tensors[:len(r.Pulls())], r.ID)
	out.free = err != nil
	return err
}

// inPlace writes every other answer into the worker's own tensors, where they can be reached.
func (a *answerer) inPlace(r ps.Request, seq uint64) error {
	a.out = a.out[:0]
	for i, p := range r.Pulls() {
		t, err := r.Out(i)
		if err != nil {
			return err
		}
		a.write(t, p, seq)
		a.out = append(a.out, t)
	}
	_, err := a.node.Respond(a.out, r.ID)
	return err
}

// write makes an answer.
func (a *answerer) write(t tensor.Tensor, p ps.Pull, seq uint64) {
	copy(t.Bytes(), a.book.page(label{serverID(a.node.Server().Rank()), uint64(p.Key), seq}, p.Bytes))
}

// take returns the memory of the oldest answer that its worker has.
func (a *answerer) take(ctx context.Context) (*answer, error) {
	at := slices.IndexFunc(a.answers, func(o *answer) bool { return o.free || o.response.Done() })
	if at < 0 {
		at = 0
		if err := a.answers[0].response.Wait(ctx); err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
			return nil, err
		}
	}
	o := a.answers[at]
	a.answers = append(append(a.answers[:at], a.answers[at+1:]...), o) // the youngest
	o.free = true
	return o, nil
}

// fit makes tensor i of an answer n bytes long.
func (a *answerer) fit(o *answer, i int, n int64) error {
	if i == len(o.tensors) {
		o.tensors = append(o.tensors, tensor.Tensor{})
	}
	if a.work.Mixed {
		return a.cut(o, n)
	}
	old := o.tensors[i]
	if int64(old.Len()) == n && old.Valid() {
		return nil
	}
	if old.Valid() && old.Region() != nil {
		if err := old.Region().Close(); err != nil {
			return err
		}
	}
	t, err := a.node.Memory().Empty(tensor.Uint8, n)
	o.tensors[i] = t
	return err
}

// cut makes the only tensor of an answer n bytes long, and has it begin anywhere.
func (a *answerer) cut(o *answer, n int64) (err error) {
	if !o.whole.Valid() {
		if o.whole, err = a.node.Memory().Empty(tensor.Uint8, a.work.largest()+cutShift); err != nil {
			return err
		}
	}
	at := n % cutShift
	o.tensors[0], err = o.whole.Slice(at, at+n)
	return err
}

// close gives all memory back. Nothing may hold it when the node has stopped.
func (a *answerer) close() error {
	a.group.Wait()
	var all []error
	for _, h := range a.unanswered {
		if _, err := a.node.Respond(nil, h); !errors.Is(err, stepvan.ErrClosed) {
			all = append(all, fmt.Errorf("a request that was not answered ended with %w", err))
		}
	}
	for _, o := range a.answers {
		for _, t := range o.tensors {
			all = append(all, t.Region().Close())
		}
	}
	for _, b := range a.buffers {
		all = append(all, b.Region().Close())
	}
	return errors.Join(all...)
}
