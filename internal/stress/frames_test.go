package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A damaged cluster has two workers and two servers, and each pair exchanges on its own. One frame is damaged: between
// a worker and a server, or between one of them and the scheduler.
const (
	hurtWorkers = 2
	hurtServers = 2
	hurtLanes   = 2 // requests that a worker has in flight with a server
	hurtRounds  = 4 // requests on each of them

	// hurtSilence is the heartbeat timeout.
	hurtSilence = 3 * time.Second
	// hurtBound is how long after the damage all must be over, by itself: programs wait as long as it takes.
	hurtBound = hurtSilence + time.Second
)

// outcome is the result of a damaged cluster.
type outcome struct {
	Seed   uint64
	Plan   string
	Part   part
	Harm   damageKind
	Hit    bool          // the frame to be damaged has come
	Early  bool          // before all nodes had started
	Took   time.Duration // from the damage to the end of all, without the time for which the machine had no processor for it
	Failed int           // exchanges with an error
	Wrong  int           // bytes that were wrong, all of them the damaged ones
	Faults []string      // what must not be
}

// damagedCluster is such a cluster.
type damagedCluster struct {
	seed   uint64
	damage *damage
	worker int  // rank of the worker whose frame is damaged; -1 when it is a server's with the scheduler
	server int  // likewise
	toRoot bool // the damaged frame is one between that node and the scheduler
	sizes  []int64
	book   *book
	relay  *relay
	ctx    context.Context

	mu      sync.Mutex
	outcome outcome
	others  []string // losses of pairs that the damage does not concern
}

// newDamagedCluster draws a cluster.
func newDamagedCluster(seed uint64) *damagedCluster {
	dice := rand.New(rand.NewPCG(seed, 7))
	d := &damage{dice: dice, part: part(seed % uint64(parts)), damageKind: damageKind(dice.IntN(int(damageKinds))), back: dice.IntN(2) == 0, reset: dice.IntN(2) == 0}
	h := &damagedCluster{seed: seed, damage: d, worker: dice.IntN(hurtWorkers), server: dice.IntN(hurtServers)}
	d.whole = (d.damageKind == dropped || d.damageKind == doubled) && dice.IntN(4) == 0
	d.nth = dice.IntN(hurtLanes * hurtRounds) // so many requests and answers there are in any case
	for range hurtLanes {
		h.sizes = append(h.sizes, []int64{8, 1000, 10 << 10, 40 << 10, 200 << 10}[dice.IntN(5)])
	}
	if d.part == inHeader && dice.IntN(4) == 0 {
		h.toRoot, d.nth = true, dice.IntN(5) // to register and to start takes as many
		if dice.IntN(2) == 0 {
			h.worker = -1
		} else {
			h.server = -1
		}
	}
	h.book = hurtBook()
	h.outcome = outcome{Seed: seed, Part: d.part, Harm: d.damageKind}
	h.outcome.Plan = fmt.Sprintf("%v; worker %d, server %d, scheduler %v (-1: all), requests of %d bytes", d, h.worker, h.server, h.toRoot, h.sizes)
	return h
}

// hurtBook is the book of all damaged clusters.
var hurtBook = sync.OnceValue(func() *book { return newBook(256 << 10) })

// concerns reports whether the damage belongs to a pair.
func (h *damagedCluster) concerns(worker, server int) bool {
	return (h.worker < 0 || h.worker == worker) && (h.server < 0 || h.server == server)
}

// fault notes what must not be.
func (h *damagedCluster) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcome.Faults = append(h.outcome.Faults, fmt.Sprintf(format, args...))
}

// run runs the cluster, and returns its outcome.
func (h *damagedCluster) run() outcome {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	h.ctx = ctx
	port := make(chan int, 1)
	if err := h.live(port); err != nil {
		h.fault("the cluster cannot be made: %v", err)
	}
	over := time.Now()
	v := &h.outcome
	var at time.Time
	if v.Hit, at = h.damage.hit(); v.Hit {
		v.Took = over.Sub(at) - h.damage.late.since()
		if v.Took > hurtBound {
			h.fault("all was over %v after the damage, and not after %v", v.Took, hurtBound)
		}
	}
	if !v.Early { // otherwise a node had not even started
		v.Faults = append(v.Faults, h.others...)
	}
	if h.relay != nil {
		if err := h.relay.close(); err != nil {
			h.fault("%v", err)
		}
	}
	return *v
}

// live starts everything and waits for its end.
func (h *damagedCluster) live(root chan int) error {
	var all sync.WaitGroup
	defer all.Wait()
	s := h.settings(ps.RoleScheduler, 0)
	all.Go(func() { h.node(s, ps.OnListen(func(p int) { root <- p })) })
	var port int
	select {
	case port = <-root:
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
	front := 0 // of the server behind the relay
	if h.toRoot {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		h.relay = newRelay(l, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), h.damage, "")
	} else {
		l, err := freeBehind()
		if err != nil {
			return err
		}
		front = l.Addr().(*net.TCPAddr).Port
		h.relay = newRelay(l, net.JoinHostPort("127.0.0.1", strconv.Itoa(front)), h.damage, fmt.Sprintf("worker %d", h.worker))
	}
	add := func(role ps.Role, rank, damagedCluster int) {
		s := h.settings(role, rank)
		s.RootPort = port
		switch {
		case rank != damagedCluster:
		case h.toRoot:
			s.RootPort = h.relay.listener.Addr().(*net.TCPAddr).Port
		case role == ps.RoleServer: // it listens at 127.0.0.1, and announces the relay's address
			s.Interface, s.NodeHost, s.Port = "lo", relayHost, front
		}
		all.Go(func() { h.node(s) })
	}
	for r := range hurtServers {
		add(ps.RoleServer, r, h.server)
	}
	for r := range hurtWorkers {
		add(ps.RoleWorker, r, h.worker)
	}
	return nil
}

// relayHost is where relays listen for a server that listens at the same port of 127.0.0.1.
const relayHost = "127.0.0.2"

// nextPort is one below those that the kernel gives to connections.
var nextPort atomic.Uint32

// freeBehind listens at relayHost, at a port that is free at 127.0.0.1 too.
func freeBehind() (net.Listener, error) {
	var last error
	for range 1000 {
		p := strconv.Itoa(10_000 + (os.Getpid()*331+int(nextPort.Add(1)))%20_000)
		behind, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", p))
		if err != nil {
			last = err
			continue
		}
		_ = behind.Close()
		l, err := net.Listen("tcp", net.JoinHostPort(relayHost, p))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, last
}

func (h *damagedCluster) settings(role ps.Role, rank int) ps.Settings {
	s := base(overTCP, hurtWorkers, hurtServers)
	s.Role = role
	if role != ps.RoleScheduler {
		s.NodeRank = rank
	}
	s.Routing, s.Batch = stepvan.Named, config.BatchAny
	s.HeartbeatInterval, s.HeartbeatTimeout, s.StartTimeout = hurtSilence/6, hurtSilence, hurtSilence
	s.PieceBytes, s.PoolBytes = 128<<10, 64<<20
	s.Handles, s.TraceEvents = 256, 0
	return s
}

// node lives the life of one node.
func (h *damagedCluster) node(s ps.Settings, opts ...ps.Option) {
	n, err := ps.Start(h.ctx, s, append(opts, ps.WithLogger(zerolog.Nop()))...)
	if err != nil {
		if hit, _ := h.damage.hit(); !hit {
			h.fault("%s %d does not start, and nothing was damaged: %v", s.Role, s.NodeRank, err)
		}
		h.mu.Lock()
		h.outcome.Early = true
		h.mu.Unlock()
		return
	}
	switch {
	case n.Worker() != nil:
		w := &damagedWorker{damagedCluster: h, node: n}
		w.work()
		h.stop(n)
		w.end()
	case n.Server() != nil:
		v := &damagedServer{damagedCluster: h, node: n, seen: map[tensor.Key]uint64{}}
		v.work()
		h.stop(n)
		v.end()
	default:
		h.stop(n)
	}
}

// stop stops a node, which must not hang whatever its peers do.
func (h *damagedCluster) stop(n *ps.Node) {
	if err := n.Stop(h.ctx); err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
		h.fault("%s stops: %v", n, err)
	}
}

// check holds tensors against what they must be, and returns the bytes that are wrong where none may be.
func (h *damagedCluster) check(who string, back bool, worker, server int, l label, at int, got []byte) {
	want := h.book.page(l, int64(len(got)))
	wrong := 0
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		if wrong++; !h.concerns(worker, server) || !h.damage.allows(back, at+i) {
			h.fault("%s: byte %d of message %+v is wrong (%#x, want %#x), and it was not damaged", who, i, l, got[i], want[i])
			return
		}
	}
	h.mu.Lock()
	h.outcome.Wrong += wrong
	h.mu.Unlock()
}

// damagedServer is a server's program: it answers everything.
type damagedServer struct {
	*damagedCluster
	node    *ps.Node
	seen    map[tensor.Key]uint64
	answers []tensor.Tensor
	buffer  tensor.Tensor
	asks    sync.WaitGroup

	unanswered []ps.RequestID // that could not be answered while the server lived
}

// work serves until all workers have gone.
func (s *damagedServer) work() {
	me := int(s.node.Server().Rank())
	s.asks.Go(s.register) // while requests come: workers that do not know it yet push to pooled memory
	var batch ps.Batch
	for {
		err := s.node.GetBatchInto(s.ctx, ps.AnyReady, &batch)
		if err != nil {
			if !errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost) {
				s.fault("%s: get_batch: %v", s.node, err)
			}
			return
		}
		for _, r := range batch.Requests {
			at := 0
			for i, t := range r.Pushes() {
				k := r.PushKeys()[i]
				s.seen[k]++
				s.check(s.node.String(), false, int(r.Worker), me, label{workerID(r.Worker), uint64(k), s.seen[k]}, at, t.Bytes())
				at += t.Len()
			}
			s.answer(r, me)
		}
	}
}

// register has the first lane of each worker push to a chunk.
func (s *damagedServer) register() {
	var ranks []ps.Rank
	var keys []tensor.Key
	for r := range ps.Rank(hurtWorkers) {
		ranks, keys = append(ranks, r), append(keys, keyOf(r, int(s.node.Server().Rank()), 0, placedKey))
	}
	t, err := s.node.Memory().Empty(tensor.Uint8, hurtWorkers*s.sizes[0])
	if errors.Is(err, stepvan.ErrClosed) {
		return // it has stopped already
	}
	if err != nil {
		s.fault("%s: %v", s.node, err)
		return
	}
	s.buffer = t
	if _, err := s.node.RegisterRecvBuffer(t, ranks, keys); err != nil && !errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost) && !errors.Is(err, context.DeadlineExceeded) {
		s.fault("%s: register_recv_buffer: %v", s.node, err)
	}
}

func (s *damagedServer) answer(r ps.Request, me int) {
	var out []tensor.Tensor
	for _, p := range r.Pulls() {
		s.seen[p.Key]++
		t, err := s.node.Memory().Empty(tensor.Uint8, p.Bytes)
		if err != nil {
			s.fault("%s: %v", s.node, err)
			return
		}
		copy(t.Bytes(), s.book.page(label{serverID(ps.Rank(me)), uint64(p.Key), s.seen[p.Key]}, p.Bytes))
		s.answers, out = append(s.answers, t), append(out, t)
	}
	_, err := s.node.Respond(out, r.ID)
	if err != nil {
		s.unanswered = append(s.unanswered, r.ID)
	}
	if err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
		s.fault("%s: respond: %v", s.node, err)
	}
}

// end gives all memory back, which nothing may hold when the node has stopped.
func (s *damagedServer) end() {
	s.asks.Wait()
	for _, r := range s.unanswered {
		_, _ = s.node.Respond(nil, r) // refused, and gives the request's memory back
	}
	for _, t := range append(s.answers, s.buffer) {
		if t.Region() == nil {
			continue
		}
		if err := t.Region().Close(); err != nil {
			s.fault("%s: memory after its end: %v", s.node, err)
		}
	}
}

// damagedWorker is a worker's program: on each lane it exchanges one request after the other with one server.
type damagedWorker struct {
	*damagedCluster
	node    *ps.Node
	mu      sync.Mutex
	handles []ps.Handle
	tensors []tensor.Tensor
}

func (w *damagedWorker) work() {
	var all sync.WaitGroup
	for s := range hurtServers {
		for l := range hurtLanes {
			all.Go(func() { w.lane(s, l) })
		}
	}
	all.Wait()
}

// lane exchanges until an exchange fails.
func (w *damagedWorker) lane(server, lane int) {
	me := w.node.Worker().Rank()
	who := fmt.Sprintf("worker %d with server %d, lane %d", me, server, lane)
	push, pull, err := w.tensor(lane), w.tensor(lane), error(nil)
	to := []ps.Rank{ps.Rank(server)}
	x := ps.Exchange{
		Routing: ps.Named, PushTo: to, PullTo: to,
		Push: []tensor.Tensor{push}, PushKeys: []tensor.Key{keyOf(me, server, lane, placedKey)},
		Pull: []tensor.Tensor{pull}, PullKeys: []tensor.Key{keyOf(me, server, lane, pullKey)},
	}
	for seq := uint64(1); seq <= hurtRounds; seq++ {
		copy(push.Bytes(), w.book.page(label{workerID(me), uint64(x.PushKeys[0]), seq}, int64(push.Len())))
		if err = w.exchange(&x); err != nil {
			break
		}
		w.check(who, true, int(me), server, label{serverID(to[0]), uint64(x.PullKeys[0]), seq}, 0, pull.Bytes())
	}
	if err == nil {
		return
	}
	w.damagedCluster.mu.Lock()
	w.outcome.Failed++
	w.damagedCluster.mu.Unlock()
	switch hit, _ := w.damage.hit(); {
	case !hit:
		w.fault("%s: %v, and nothing was damaged", who, err)
	case !w.concerns(int(me), server):
		w.damagedCluster.mu.Lock()
		w.others = append(w.others, fmt.Sprintf("%s: %v, and the damage is not theirs", who, err))
		w.damagedCluster.mu.Unlock()
	case !errors.Is(err, stepvan.ErrPeerLost) && !errors.Is(err, stepvan.ErrRemote):
		w.fault("%s: the error is of another kind: %v", who, err)
	}
}

// exchange waits without a limit but that of the test.
func (w *damagedWorker) exchange(x *ps.Exchange) error {
	h, err := w.node.Do(x)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.handles = append(w.handles, h)
	w.mu.Unlock()
	return h.Wait(w.ctx)
}

func (w *damagedWorker) tensor(lane int) tensor.Tensor {
	t, err := w.node.Memory().Empty(tensor.Uint8, w.sizes[lane])
	if err != nil {
		panic(err) // there is memory for small tensors
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tensors = append(w.tensors, t)
	return t
}

// end requires that every handle has ended, and gives all memory back.
func (w *damagedWorker) end() {
	for _, h := range w.handles {
		if !h.Done() {
			w.fault("%s: a handle has not ended, and its node has", w.node)
		}
	}
	for _, t := range w.tensors {
		if err := t.Region().Close(); err != nil {
			w.fault("%s: memory after its end: %v", w.node, err)
		}
	}
}
