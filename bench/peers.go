package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// newPeerProgram makes the program of a node with the role peer.
func newPeerProgram(ctx context.Context, n *ps.Node, s *Options, times latencies) (program, error) {
	switch s.Workload {
	case Bus:
		return newBussing(ctx, n, s, times)
	case Refit:
		return newRefitting(n, s)
	case Replay:
		return newReplaying(ctx, n, s, times)
	case Put:
		return newPutting(n, s, times)
	case Particles:
		return newMessaging(n, s, times)
	}
	return newSending(n, s, times)
}

// pair is what the programs of two peers have in common. The first peer asks, the other answers.
type pair struct {
	node      *ps.Node
	peer      *peer.Peer
	spec      *Options
	other     stepvan.Rank
	times     latencies
	connected bool
}

func newPair(n *ps.Node, s *Options, times latencies) pair {
	return pair{node: n, peer: n.Peer(), spec: s, other: 1 - stepvan.Rank(n.Rank()), times: times}
}

func (p *pair) asks() bool { return p.other == 1 }

// connect opens the session, once.
func (p *pair) connect(ctx context.Context) error {
	if p.connected {
		return nil
	}
	p.connected = true
	if err := p.peer.Connect(ctx, p.other); err != nil {
		return err
	}
	return checkVan(p.node.Connections(), p.spec.Van)
}

// tensorOf makes a tensor in memory that the other peer may see.
func tensorOf(n *ps.Node, size Size) (tensor.Tensor, error) {
	r, err := n.Memory().AllocFile(int(size))
	if err != nil {
		return tensor.Tensor{}, err
	}
	clear(r.Bytes())
	return tensor.FromRegion(r, 0, tensor.Uint8, tensor.ShapeOf(int64(size)))
}

// sending is the program of p2p. The first peer sends a tensor, and the other one sends it back.
type sending struct {
	pair
	out tensor.Tensor
	in  [2]tensor.Tensor // one is received while the other one is sent back
}

// Tags of the transfers.
const (
	tagThere peer.Tag = 1
	tagBack  peer.Tag = 2
	tagEnd   peer.Tag = 3
)

func newSending(n *ps.Node, s *Options, times latencies) (p *sending, err error) {
	p = &sending{pair: newPair(n, s, times)}
	for _, t := range []*tensor.Tensor{&p.out, &p.in[0], &p.in[1]} {
		if *t, err = tensorOf(n, s.Push); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *sending) check(ctx context.Context, count int) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	if !p.asks() {
		return p.answer(ctx, count)
	}
	for i := range count {
		for k := range p.out.Bytes() {
			p.out.Bytes()[k] = byte(i) + byte(k) + byte(k>>8)
		}
		clear(p.in[0].Bytes())
		if err := p.ask(ctx); err != nil {
			return err
		}
		if at := firstWrong(p.in[0].Bytes(), p.out.Bytes(), 0); at >= 0 {
			return fmt.Errorf("byte %d that peer %d sent back is wrong", at, p.other)
		}
	}
	return nil
}

func (p *sending) run(ctx context.Context, count int) error {
	if !p.asks() {
		return p.answer(ctx, count)
	}
	for ; count > 0; count-- {
		began := trace.Now()
		if err := p.ask(ctx); err != nil {
			return err
		}
		p.times.add(time.Duration(trace.Now() - began))
	}
	return nil
}

// ask sends the tensor, and waits until it is back.
func (p *sending) ask(ctx context.Context) error {
	back, err := p.peer.Recv(p.in[0].Strided(), p.other, tagBack)
	if err != nil {
		return err
	}
	there, err := p.peer.Send(p.out.Strided(), p.other, tagThere)
	if err == nil {
		err = back.Wait(ctx)
	}
	if err == nil {
		err = there.Wait(ctx)
	}
	return err
}

// answer sends back what comes, count times.
func (p *sending) answer(ctx context.Context, count int) error {
	next, err := p.peer.Recv(p.in[0].Strided(), p.other, tagThere)
	if err != nil {
		return err
	}
	for i := range count {
		if err := next.Wait(ctx); err != nil {
			return err
		}
		if i+1 < count {
			if next, err = p.peer.Recv(p.in[(i+1)%2].Strided(), p.other, tagThere); err != nil {
				return err
			}
		}
		back, err := p.peer.Send(p.in[i%2].Strided(), p.other, tagBack)
		if err == nil {
			err = back.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *sending) finish(context.Context) error { return nil }

// putting is the program of put. The first peer writes into a window of the other one, with a note. The driver of the
// other one answers the note with a small tensor, which says whether the elements were right. Its program only waits.
type putting struct {
	pair
	out, answer, end tensor.Tensor
	window           tensor.Tensor // of the peer that answers
	token            peer.Token    // of the window
	note             [2]byte       // whether to check, and the seed
	failed           error         // of an answer
}

const topicToken peer.Topic = "token"

func newPutting(n *ps.Node, s *Options, times latencies) (p *putting, err error) {
	p = &putting{pair: newPair(n, s, times)}
	for _, t := range []*tensor.Tensor{&p.answer, &p.end} {
		if *t, err = tensorOf(n, smallBytes); err != nil {
			return nil, err
		}
	}
	if p.out, err = tensorOf(n, s.Push); err != nil || p.asks() {
		return p, err
	}
	p.window = p.out
	return p, nil
}

// attach connects with the other peer and has the token travel, once.
func (p *putting) attach(ctx context.Context) error {
	if p.connected {
		return nil
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	if !p.asks() {
		w, err := p.peer.Expose(p.window.Strided(), peer.WindowOptions{Rights: peer.RightRead | peer.RightWrite, Note: p.noted})
		if err != nil {
			return err
		}
		token := w.Token()
		return p.peer.Mail(p.other, topicToken, token[:])
	}
	came := make(chan peer.Token, 1)
	stop, err := p.peer.Listen(topicToken, func(_ stepvan.Rank, body []byte) {
		var token peer.Token
		copy(token[:], body)
		came <- token
	})
	if err != nil {
		return err
	}
	defer stop()
	select {
	case p.token = <-came:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noted answers a note. The driver calls it.
func (p *putting) noted(_ stepvan.Rank, note []byte) {
	wrong := -1
	if len(note) == len(p.note) && note[0] == 1 {
		wrong = wrongByte(p.window.Bytes(), note[1])
	}
	binary.LittleEndian.PutUint64(p.answer.Bytes(), uint64(wrong+1))
	if _, err := p.peer.Send(p.answer.Strided(), p.other, tagBack); err != nil {
		p.failed = err
	}
}

// writeSeed writes bytes that differ with the seed. wrongByte finds the first one that differs, or -1.
func writeSeed(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)
	}
}

func wrongByte(b []byte, seed byte) int {
	for i, got := range b {
		if got != seed+byte(i)+byte(i>>8) {
			return i
		}
	}
	return -1
}

func (p *putting) check(ctx context.Context, count int) error {
	if err := p.attach(ctx); err != nil {
		return err
	}
	if !p.asks() {
		return p.wait(ctx)
	}
	for range count {
		p.note[0] = 1
		p.note[1]++
		writeSeed(p.out.Bytes(), p.note[1])
		if err := p.put(ctx); err != nil {
			return err
		}
	}
	p.note[0] = 0
	return p.release(ctx)
}

func (p *putting) run(ctx context.Context, count int) error {
	if !p.asks() {
		return p.wait(ctx)
	}
	for ; count > 0; count-- {
		began := trace.Now()
		if err := p.put(ctx); err != nil {
			return err
		}
		p.times.add(time.Duration(trace.Now() - began))
	}
	return p.release(ctx)
}

// put writes the tensor, and waits for the answer to the note.
func (p *putting) put(ctx context.Context) error {
	answered, err := p.peer.Recv(p.answer.Strided(), p.other, tagBack)
	if err != nil {
		return err
	}
	written, err := p.peer.Put(p.out.Strided(), p.token, nil, p.note[:])
	if err == nil {
		err = answered.Wait(ctx)
	}
	if err == nil {
		err = written.Wait(ctx)
	}
	if err == nil && p.note[0] == 1 {
		if wrong := binary.LittleEndian.Uint64(p.answer.Bytes()); wrong != 0 {
			err = errs.Invalid("byte %d in the window of peer %d is wrong", wrong-1, p.other)
		}
	}
	return err
}

// release ends the wait of the other peer.
func (p *putting) release(ctx context.Context) error {
	h, err := p.peer.Send(p.end.Strided(), p.other, tagEnd)
	if err == nil {
		err = h.Wait(ctx)
	}
	return err
}

// wait waits until the peer that writes has ended its round.
func (p *putting) wait(ctx context.Context) error {
	h, err := p.peer.Recv(p.end.Strided(), p.other, tagEnd)
	if err == nil {
		err = h.Wait(ctx)
	}
	return errors.Join(err, p.failed)
}

func (p *putting) finish(context.Context) error { return nil }
