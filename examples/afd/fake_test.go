package afd_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// heap is Memory on the Go heap.
type heap struct{}

func (heap) Empty(_ tensor.DType, dims ...int64) (tensor.Tensor, error) {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return tensor.FromSlice(make([]float32, n), dims...)
}

// fabric connects workers and servers in one process by the rules of real nodes, at their
// least convenient. It places a push in the registered chunk, and refuses it while the
// chunk is in use. It fetches an answer from the server's memory only when the worker
// waits for it.
type fabric struct {
	workers []*fakeWorker
	servers []*fakeServer
}

type chunkID struct {
	rank stepvan.Rank
	key  tensor.Key
}

type fakeServer struct {
	inbox  chan *fakeRequest
	mu     sync.Mutex
	chunks map[chunkID]tensor.Tensor
	busy   map[chunkID]bool
	asked  map[ps.RequestID]*fakeRequest // handed out and not answered
	last   ps.RequestID
	refuse func() bool // answers ErrWouldBlock when set and true
	ended  bool        // the registration
}

type fakeWorker struct {
	fabric   *fabric
	rank     stepvan.Rank
	refuse   func() bool // answers ErrWouldBlock when set and true
	labels   map[string]int
	inFlight int
	most     int // in flight at once
}

type fakeRequest struct {
	id       chunkID
	keys     []tensor.Key
	tensors  []tensor.Tensor
	pull     tensor.Tensor
	answered chan []tensor.Tensor
	fetched  chan struct{}
}

func newFabric(workers, servers int) *fabric {
	f := &fabric{}
	for rank := range workers {
		f.workers = append(f.workers, &fakeWorker{fabric: f, rank: stepvan.Rank(rank), labels: map[string]int{}})
	}
	for range servers {
		f.servers = append(f.servers, &fakeServer{
			inbox: make(chan *fakeRequest, 64), chunks: map[chunkID]tensor.Tensor{}, busy: map[chunkID]bool{}, asked: map[ps.RequestID]*fakeRequest{},
		})
	}
	return f
}

// leave ends the batches of the servers: all workers have left.
func (f *fabric) leave() {
	for _, s := range f.servers {
		close(s.inbox)
	}
}

func (w *fakeWorker) Do(q *ps.Exchange) (afd.Handle, error) {
	if w.refuse != nil && w.refuse() {
		return nil, stepvan.ErrWouldBlock
	}
	if len(q.Push) != len(q.PushKeys) || len(q.Pull) != len(q.PullKeys) || len(q.Pull) != len(w.fabric.servers) {
		return nil, fmt.Errorf("%d pushes, %d keys, %d pulls, %d keys", len(q.Push), len(q.PushKeys), len(q.Pull), len(q.PullKeys))
	}
	h := &fakeHandle{worker: w}
	for i, s := range w.fabric.servers {
		r := &fakeRequest{
			id: chunkID{w.rank, q.PushKeys[0]}, keys: slices.Clone(q.PushKeys), pull: q.Pull[i],
			answered: make(chan []tensor.Tensor, 1), fetched: make(chan struct{}),
		}
		if err := s.place(r, q.Push[0]); err != nil {
			return nil, err
		}
		h.requests = append(h.requests, r)
		s.inbox <- r
	}
	w.labels[q.Label]++
	w.inFlight++
	w.most = max(w.most, w.inFlight)
	return h, nil
}

func (s *fakeServer) place(r *fakeRequest, pushed tensor.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[r.id] {
		return fmt.Errorf("key %x of worker %d is busy", uint64(r.id.key), r.id.rank)
	}
	s.busy[r.id] = true
	chunk, ok := s.chunks[r.id]
	if !ok {
		return fmt.Errorf("key %x of worker %d is not registered", uint64(r.id.key), r.id.rank)
	}
	if chunk.Len() < pushed.Len() {
		return fmt.Errorf("%d bytes do not fit the chunk of %d", pushed.Len(), chunk.Len())
	}
	view, err := tensor.FromBytes(pushed.DType(), pushed.Shape(), chunk.Bytes()[:pushed.Len()])
	if err != nil {
		return err
	}
	copy(view.Bytes(), pushed.Bytes())
	r.tensors = []tensor.Tensor{view}
	return nil
}

func (s *fakeServer) RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (afd.Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := t.Len() / len(keys)
	for i, key := range keys {
		chunk, err := tensor.FromSlice(t.Bytes()[i*size : (i+1)*size])
		if err != nil {
			return nil, err
		}
		s.chunks[chunkID{ranks[i], key}] = chunk
	}
	return s, nil
}

func (s *fakeServer) Unregister() error {
	s.ended = true
	return nil
}

func (s *fakeServer) GetBatch(ctx context.Context) ([]afd.Request, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r, ok := <-s.inbox:
		if !ok {
			return nil, fmt.Errorf("all workers left: %w", stepvan.ErrClosed)
		}
		return []afd.Request{s.handOut(r)}, nil
	}
}

// handOut gives the request a number.
func (s *fakeServer) handOut(r *fakeRequest) afd.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.asked[s.last] = r
	return afd.Request{ID: s.last, Keys: r.keys, Tensors: r.tensors}
}

func (s *fakeServer) Respond(tensors []tensor.Tensor, id ps.RequestID) (afd.Handle, error) {
	if s.refuse != nil && s.refuse() {
		return nil, stepvan.ErrWouldBlock
	}
	s.mu.Lock()
	r := s.asked[id]
	s.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("request %d was not handed out, or is answered", id)
	}
	if len(tensors) != 1 || tensors[0].Len() != r.pull.Len() {
		return nil, fmt.Errorf("%d tensors do not fit the pull", len(tensors))
	}
	s.mu.Lock()
	s.busy[r.id] = false
	delete(s.asked, id)
	s.mu.Unlock()
	r.answered <- slices.Clone(tensors)
	return fetchedHandle{r}, nil
}

// fakeHandle fetches the answers when it is waited for.
type fakeHandle struct {
	worker   *fakeWorker
	requests []*fakeRequest
}

func (h *fakeHandle) Wait(ctx context.Context) error {
	for _, r := range h.requests {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case out := <-r.answered:
			copy(r.pull.Bytes(), out[0].Bytes())
			close(r.fetched)
		}
	}
	h.worker.inFlight--
	return nil
}

// fetchedHandle is done when the worker has its answer.
type fetchedHandle struct{ request *fakeRequest }

func (h fetchedHandle) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-h.request.fetched:
		return nil
	}
}
