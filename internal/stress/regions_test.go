package stress

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Each round has a region of its own on the worker. On the server it has a registered
// region, or pooled memory.
const (
	regionBytes = 64 << 20
	regionStep  = 192 << 10 // rounds differ by multiples of it
	regionSizes = 16
	regionPiece = 1 << 20 // pages of a region, except the last
)

// sizeOf is the size of a round's region. It differs from the sizes of the last rounds, and is so large that the region
// shares no file with others. The first is the largest, so that it touches all pages that a pool keeps.
func sizeOf(round int) int64 {
	return regionBytes + int64(regionSizes-(round-1)*7%regionSizes)*regionStep
}

// pieces calls f for each page of a region.
func pieces(b []byte, f func(seq uint64, piece []byte)) {
	for i := 0; i < len(b); i += regionPiece {
		f(uint64(i/regionPiece), b[i:min(i+regionPiece, len(b))])
	}
}

func pieceLabel(round int, seq uint64) label { return label{uint64(round), 0, seq} }

// rounds of the warm-up and of the proof.
func rounds() (warm, proof int) {
	if *long {
		return 50, 1000
	}
	return 3, 6
}

// few handles are kept, so that the warm-up has made them all.
func few(s *ps.Settings) { s.Handles, s.TraceEvents = 2, 2 }

// A node that allocates, registers, pushes from and frees a large region again and again ends as it
// began. So does the node that receives the pushes: no node keeps a file whose owner has dropped
// it.
func TestRegionsComeAndGoSoak(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		cl := raise(t, van, shape{workers: 1, servers: 1, work: work{Regions: true}, edit: few})
		warm, proof := rounds()
		nodes := []*child{cl.servers[0], cl.workers[0]}
		do := func(n int) {
			tellAll(nodes, command{Do: doRun, Count: n})
			for _, p := range nodes {
				p.awaitFor(soakBound, evRan, nil)
			}
		}
		do(warm)
		before := []vitals{nodes[0].sample(), nodes[1].sample()}
		do(proof)
		for i, p := range nodes {
			requireFlat(t, p.name, before[i], p.sample)
		}
		cl.workers[0].tell(command{Do: doStop})
		cl.servers[0].tell(command{Do: doStop})
		for _, p := range cl.all() {
			require.Empty(t, p.end())
		}
		require.Empty(t, files(t, cl.dir))
	})
}

// mover is the program of both sides: rounds on command.
type mover struct {
	node   *ps.Node
	report sink
	book   *book
	round  int
}

func (m *mover) do(ctx context.Context, c command) {
	turn := m.push
	if m.node.Server() != nil {
		turn = m.receive
	}
	for range c.Count {
		m.round++
		if err := turn(ctx); err != nil {
			m.report(event{Kind: evWrong, Text: fmt.Sprintf("%s, round %d: %v", m.node, m.round, err)})
			return
		}
	}
	m.report(event{Kind: evRan})
}

// beginRound has both sides begin a round: what the server registers is known to the worker.
func (m *mover) beginRound(ctx context.Context) error {
	return m.node.Barrier(ctx, ps.Servers|ps.Workers, true)
}

// push is a worker's round.
func (m *mover) push(ctx context.Context) error {
	t, err := m.node.Memory().Empty(tensor.Uint8, sizeOf(m.round))
	if err != nil {
		return err
	}
	held, err := m.node.Worker().Register(t)
	if err != nil {
		return err
	}
	pieces(t.Bytes(), func(seq uint64, p []byte) { copy(p, m.book.page(pieceLabel(m.round, seq), int64(len(p)))) })
	if err := m.beginRound(ctx); err != nil {
		return err
	}
	answer, err := m.node.Memory().Empty(tensor.Uint8, regionPiece)
	if err != nil {
		return err
	}
	h, err := m.node.PushPull([]tensor.Tensor{t}, []tensor.Key{1}, []tensor.Tensor{answer}, []tensor.Key{2})
	if err == nil {
		err = h.Wait(ctx)
	}
	if err == nil {
		err = m.book.check(pieceLabel(-m.round, 0), answer.Bytes())
	}
	return errors.Join(err, held.Close(), t.Region().Close(), answer.Region().Close())
}

// receive is a server's round; every other one has a buffer for it.
func (m *mover) receive(ctx context.Context) error {
	var buf tensor.Tensor
	var reg *ps.ReceiveBuffer
	var err error
	if m.round%2 == 0 {
		if buf, err = m.node.Memory().Empty(tensor.Uint8, sizeOf(m.round)); err != nil {
			return err
		}
		if reg, err = m.node.RegisterRecvBuffer(buf, []ps.Rank{0}, []tensor.Key{1}); err != nil {
			return err
		}
	}
	if err := m.beginRound(ctx); err != nil {
		return err
	}
	b, err := m.node.GetBatch(ctx, ps.LockStep)
	if err != nil {
		return err
	}
	got := b.Requests[0].Pushes()[0]
	if reg != nil && &got.Bytes()[0] != &buf.Bytes()[0] {
		return errors.New("the push did not arrive in the buffer that is registered for it")
	}
	var wrong error
	pieces(got.Bytes(), func(seq uint64, p []byte) { wrong = errors.Join(wrong, m.book.check(pieceLabel(m.round, seq), p)) })
	if wrong != nil {
		return wrong
	}
	answer, err := m.node.Memory().Empty(tensor.Uint8, regionPiece)
	if err != nil {
		return err
	}
	copy(answer.Bytes(), m.book.page(pieceLabel(-m.round, 0), regionPiece))
	res, err := m.node.Respond([]tensor.Tensor{answer}, b.Requests[0].ID)
	if err == nil {
		err = res.Wait(ctx)
	}
	if reg != nil {
		err = errors.Join(err, reg.Unregister(), buf.Region().Close())
	}
	return errors.Join(err, answer.Region().Close())
}
