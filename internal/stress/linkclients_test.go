package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van/shmvan"
	"github.com/stepvan/stepvan/van/tcpvan"
	"github.com/stepvan/stepvan/worker"
)

// A linkServer is a server without a scheduler, which lives on while workers come and go.

// vanOf returns what link servers and their clients reach each other over.
func vanOf(name, dir string) (pairtest.Van, error) {
	switch name {
	case "tcp":
		return pairtest.TCP(), nil
	case "unix":
		v := pairtest.TCPVan(name, tcpvan.Options{Local: true})
		v.Addr = func(string) string { return "unix://" + filepath.Join(dir, "outpost") }
		return v, nil
	case "mem":
		return pairtest.OneSided(), nil
	case "shm":
		return pairtest.ShmVan(shmvan.Options{Dir: dir}), nil
	}
	return pairtest.Van{}, fmt.Errorf("there is no van %q", name)
}

// transportNode is a node at the end of a connection.
type transportNode struct {
	mem  *tensor.Allocator
	node *link.Transport
}

func newTransportNode(v pairtest.Van, id wire.PeerID, name string) (*transportNode, error) {
	mem, err := tensor.NewAllocator(tensor.Options{Name: name})
	if err != nil {
		return nil, err
	}
	n, err := link.NewTransport(link.Options{Vans: []link.VanMaker{v.Maker(name, mem)}, Memory: mem, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	n.SetIdentity(link.Identity{ID: id, Incarnation: 1, Name: name})
	return &transportNode{mem, n}, nil
}

// close ends the node, which must hold no memory any more.
func (p *transportNode) close() error { return errors.Join(p.node.Close(), p.mem.Close()) }

const (
	linkServerID wire.PeerID = 1
	linkClientID wire.PeerID = 100
	strangerID   wire.PeerID = 101 // a worker that the link server waits for and that never comes
)

// visit is the payload of one exchange with a link server.
var visit = load{Placed: 64 << 10, Pooled: 3000, Pull: 100 << 10}

// linkServer is the server.
type linkServer struct {
	*transportNode
	server *server.Server
	addr   string
	book   *book
	report sink
	buffer tensor.Tensor
	out    tensor.Tensor // of all answers, each of which waits for the last one
	batch  server.Batch
	group  sync.WaitGroup
}

// watch reports the ends of sessions.
type watch struct {
	link.BaseHandler
	report sink
}

func (w watch) Receive(*link.Inbound) (kept bool) { return false }
func (w watch) Lost(s *link.Session, _ error)     { w.report(event{Kind: evDead, Text: s.Peer().Name}) }
func (o *linkServer) wrong(what string, err error) {
	o.report(event{Kind: evWrong, Text: fmt.Sprintf("%s: %v", what, err)})
}
func clientKey(what int) tensor.Key                             { return keyOf(0, 0, 0, what) }
func clientLabel(from uint64, key tensor.Key, seq uint64) label { return label{from, uint64(key), seq} }

func newLinkServer(v pairtest.Van, report sink) (*linkServer, error) {
	p, err := newTransportNode(v, linkServerID, "outpost")
	if err != nil {
		return nil, err
	}
	o := &linkServer{transportNode: p, book: newBook(visit.Pull), report: report}
	p.node.Handle(link.ChannelControl, watch{report: report})
	if o.server, err = server.New(p.node, server.Options{Policy: stepvan.AnyReady, Handles: 16, Log: zerolog.Nop()}); err != nil {
		return nil, err
	}
	if err = o.server.Join(0, []server.Worker{{Rank: 0, Name: "visitor", ID: linkClientID}, {Rank: 1, Name: "stranger", ID: strangerID}}); err != nil {
		return nil, err
	}
	if o.buffer, err = p.mem.Empty(tensor.Uint8, visit.Placed); err != nil {
		return nil, err
	}
	if o.out, err = p.mem.Empty(tensor.Uint8, visit.Pull); err != nil {
		return nil, err
	}
	if _, err = o.server.RegisterRecvBuffer(o.buffer, []stepvan.Rank{0}, []tensor.Key{clientKey(placedKey)}); err != nil {
		return nil, err
	}
	bound, err := p.node.Listen(v.Addr("outpost"))
	if err != nil {
		return nil, err
	}
	o.addr = bound[0]
	o.group.Go(func() { o.serve() })
	return o, nil
}

// serve answers visitors until the server is closed.
func (o *linkServer) serve() {
	for {
		err := o.server.GetBatchInto(context.Background(), stepvan.AnyReady, &o.batch)
		if errors.Is(err, stepvan.ErrClosed) {
			return
		}
		if err != nil {
			o.wrong("get_batch", err)
			return
		}
		for _, r := range o.batch.Requests {
			if err := o.answer(r); err != nil {
				o.wrong("answer", err)
				return
			}
		}
	}
}

// answer checks a request, whose number is the first pull's key, and answers it.
func (o *linkServer) answer(r server.Request) error {
	seq := uint64(r.Pulls()[0].Key)
	for i, t := range r.Pushes() {
		if err := o.book.check(clientLabel(1, r.PushKeys()[i], seq), t.Bytes()); err != nil {
			o.wrong("push of a linkClient", err)
		}
	}
	copy(o.out.Bytes(), o.book.page(clientLabel(2, clientKey(pullKey), seq), visit.Pull))
	res, err := o.server.Respond([]tensor.Tensor{o.out}, r.ID)
	if err != nil {
		return err
	}
	if err := res.WaitFor(bound); err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
		return err
	}
	return nil
}

func (o *linkServer) close() error {
	err := o.server.Close()
	o.group.Wait()
	return errors.Join(err, o.node.Close(), o.buffer.Region().Close(), o.out.Region().Close(), o.transportNode.close())
}

// call is one visit: a worker starts, connects, exchanges n times and stops. What is
// not n is endless; each exchange is checked.
func call(v pairtest.Van, b *book, addr string, n int, done func(int)) (err error) {
	p, err := newTransportNode(v, linkClientID, "visitor")
	if err != nil {
		return err
	}
	w := worker.New(p.node, worker.Options{Handles: 16, Log: zerolog.Nop()})
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	s, err := p.node.Dial(ctx, []string{addr})
	if err != nil {
		return err
	}
	if err := w.Join(0, []worker.Server{{Rank: 0, Name: "outpost", Session: s}}); err != nil {
		return err
	}
	var mem []tensor.Tensor
	for _, n := range []int64{visit.Placed, visit.Pooled, visit.Pull} {
		t, err := p.mem.Empty(tensor.Uint8, n)
		if err != nil {
			return err
		}
		mem = append(mem, t)
	}
	for i := 0; i != n; i++ {
		if err := exchange(w, b, mem, uint64(i+1)); err != nil {
			return err
		}
		done(i + 1)
	}
	err = w.Close()
	_ = p.node.Close()
	for _, t := range mem {
		err = errors.Join(err, t.Region().Close())
	}
	return errors.Join(err, p.close())
}

// exchange is number seq of a visit.
func exchange(w *worker.Worker, b *book, mem []tensor.Tensor, seq uint64) error {
	for what, t := range mem[:2] {
		copy(t.Bytes(), b.page(clientLabel(1, clientKey(what), seq), int64(t.Len())))
	}
	h, err := w.PushPull(mem[:2], []tensor.Key{clientKey(placedKey), clientKey(pooledKey)}, mem[2:], []tensor.Key{tensor.Key(seq)})
	if err != nil {
		return err
	}
	if err := h.WaitFor(bound); err != nil {
		return err
	}
	return b.check(clientLabel(2, clientKey(pullKey), seq), mem[2].Bytes())
}

// calls are the visits of the warm-up and of the proof.
func calls() (warm, proof int) {
	if *long {
		return 100, 1000
	}
	return 20, 100 / slowness
}

// A server stays as it was after any number of workers that came, exchanged and left. All run in one process.
func TestVisitorsOfOneProcessLeaveNothingSoak(t *testing.T) {
	for _, name := range []string{"tcp", "unix", "mem", "shm"} {
		t.Run(name, func(t *testing.T) {
			events := make(chan event, 4096)
			v, err := vanOf(name, private(t))
			require.NoError(t, err)
			o, err := newLinkServer(v, func(e event) { events <- e })
			require.NoError(t, err)
			b := newBook(visit.Pull)
			come := func(n int) {
				for range n {
					require.NoError(t, call(v, b, o.addr, 3, func(int) {}))
					e := <-events
					require.Equal(t, evDead, e.Kind, e.Text)
				}
			}
			warm, proof := calls()
			come(warm)
			was, err := takeStock()
			require.NoError(t, err)
			before := steady(t)()
			come(proof)
			require.Empty(t, was.leaks())
			requireFlat(t, "the process", before, steady(t))
			runtime.KeepAlive(b)
			require.NoError(t, o.close())
		})
	}
}

// The test does the same with the server and the workers in two processes. Then it kills workers at a
// random moment of an exchange.
func TestVisitorsOfProcessesLeaveNothingSoak(t *testing.T) {
	for _, name := range []string{"tcp", "unix", "shm"} {
		t.Run(name, func(t *testing.T) {
			dir := private(t)
			s := shape{workers: 1, servers: 1}.settings(overTCP, ps.RoleServer, 0, 1)
			o := spawn(t, s, job{Program: "link server", Transport: name, Dir: dir})
			addr := o.await(evStarted, nil).Text
			s.Role = ps.RoleWorker
			linkClient := func() *child {
				return spawn(t, s, job{Program: "link client", Transport: name, Dir: dir, Addr: addr})
			}

			v := linkClient()
			come := func(n int) {
				for range n {
					v.tell(command{Do: doCycle, Count: 3})
					require.Empty(t, v.await(evRan, nil).Text)
					o.await(evDead, nil)
				}
			}
			warm, proof := calls()
			come(warm)
			before := []vitals{o.sample(), v.sample()}
			come(proof)
			requireFlat(t, "the linkServer", before[0], o.sample)
			requireFlat(t, "the linkClient", before[1], v.sample)
			v.tell(command{Do: doStop})
			require.Empty(t, v.end())

			kills, random := proof/10, rand.New(rand.NewPCG(1, 2))
			for range kills {
				v := linkClient()
				v.tell(command{Do: doCycle, Count: -1})
				v.await(evMark, nil)
				time.Sleep(time.Duration(random.Int64N(int64(2 * time.Millisecond))))
				at := v.kill()
				took := since(o.await(evDead, nil).At, at)
				require.LessOrEqual(t, took, noticed)
			}
			requireFlat(t, fmt.Sprintf("the linkServer, with %d killed visitors", kills), before[0], o.sample)
			o.tell(command{Do: doStop})
			require.Empty(t, o.end())
			require.Empty(t, files(t, dir))
		})
	}
}

// linkServer runs a link server until the stop command.
func (c *childProgram) linkServer(context.Context) error {
	was, err := takeStock()
	if err != nil {
		return err
	}
	v, err := vanOf(c.job.Transport, c.job.Dir)
	if err != nil {
		return err
	}
	o, err := newLinkServer(v, c.report)
	if err != nil {
		return err
	}
	c.report(event{Kind: evStarted, Text: o.addr})
	for cmd := range c.commands {
		if cmd.Do == doSample {
			c.sample()
			continue
		}
		break
	}
	if err := o.close(); err != nil {
		return err
	}
	c.report(event{Kind: evEnded, Leaks: was.leaks()})
	return nil
}

// linkClient connects to a link server at each command, with that many exchanges. A negative number
// means without end.
func (c *childProgram) linkClient(ctx context.Context) error {
	v, err := vanOf(c.job.Transport, c.job.Dir)
	if err != nil {
		return err
	}
	b := newBook(visit.Pull)
	return c.cycle(func(cmd command) error {
		return call(v, b, c.job.Addr, cmd.Count, func(n int) {
			if n == 100 {
				c.report(event{Kind: evMark})
			}
		})
	})
}
