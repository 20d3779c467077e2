package afd_test

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/stepvan/stepvan/examples/afd"
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

// fabric joins workers and servers in one process by the rules of the real one,
// at its least convenient: a push is placed in the registered chunk, refused while
// the chunk is in use, and an answer is fetched from the server's memory only when
// the worker waits for it.
type fabric struct {
	workers []*fakeWorker
	servers []*fakeServer
}

type chunkID struct {
	rank int
	key  tensor.Key
}

type fakeServer struct {
	inbox  chan *fakeRequest
	mu     sync.Mutex
	chunks map[chunkID]tensor.Tensor
	busy   map[chunkID]bool
}

type fakeWorker struct {
	fabric   *fabric
	rank     int
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

func (r *fakeRequest) Keys() []tensor.Key       { return r.keys }
func (r *fakeRequest) Tensors() []tensor.Tensor { return r.tensors }

func newFabric(workers, servers int) *fabric {
	f := &fabric{}
	for rank := range workers {
		f.workers = append(f.workers, &fakeWorker{fabric: f, rank: rank})
	}
	for range servers {
		f.servers = append(f.servers, &fakeServer{
			inbox: make(chan *fakeRequest, 64), chunks: map[chunkID]tensor.Tensor{}, busy: map[chunkID]bool{},
		})
	}
	return f
}

// leave tells the servers that no worker will ask again.
func (f *fabric) leave() {
	for _, s := range f.servers {
		close(s.inbox)
	}
}

func (w *fakeWorker) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (afd.Handle, error) {
	if len(push) != len(pushKeys) || len(pull) != len(pullKeys) || len(pull) != len(w.fabric.servers) {
		return nil, fmt.Errorf("%d pushes, %d keys, %d pulls, %d keys", len(push), len(pushKeys), len(pull), len(pullKeys))
	}
	h := &fakeHandle{worker: w}
	for i, s := range w.fabric.servers {
		r := &fakeRequest{
			id: chunkID{w.rank, pushKeys[0]}, keys: append([]tensor.Key(nil), pushKeys...), pull: pull[i],
			answered: make(chan []tensor.Tensor, 1), fetched: make(chan struct{}),
		}
		if err := s.place(r, push[0]); err != nil {
			return nil, err
		}
		h.requests = append(h.requests, r)
		s.inbox <- r
	}
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

func (s *fakeServer) RegisterRecvBuffer(t tensor.Tensor, ranks []int, keys []tensor.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := t.Len() / len(keys)
	for i, key := range keys {
		chunk, err := tensor.FromSlice(t.Bytes()[i*size : (i+1)*size])
		if err != nil {
			return err
		}
		s.chunks[chunkID{ranks[i], key}] = chunk
	}
	return nil
}

func (s *fakeServer) GetBatch(ctx context.Context) ([]*fakeRequest, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r, ok := <-s.inbox:
		if !ok {
			return nil, fmt.Errorf("all workers left: %w", net.ErrClosed)
		}
		return []*fakeRequest{r}, nil
	}
}

func (s *fakeServer) Respond(tensors []tensor.Tensor, r *fakeRequest) (afd.Handle, error) {
	if len(tensors) != 1 || tensors[0].Len() != r.pull.Len() {
		return nil, fmt.Errorf("%d tensors do not fit the pull", len(tensors))
	}
	s.mu.Lock()
	s.busy[r.id] = false
	s.mu.Unlock()
	r.answered <- append([]tensor.Tensor(nil), tensors...)
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
