package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/replay"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// Batches of replay.
const (
	replayName       = "bench"
	replayRow   Size = 400
	replayBatch Size = 16 << 20
	columnBytes Size = 4 // float32
)

// replaying is the program of replay: the first peer is the learner, and the others are collectors.
type replaying struct {
	node      *ps.Node
	spec      *Options
	times     latencies
	end       tensor.Tensor // that the learner sends at the end of a round
	ring      *replay.Ring  // of the learner
	collector *replay.Collector
	ranks     []stepvan.Rank // of collectors
	tick      replay.Tick
}

func newReplaying(ctx context.Context, n *ps.Node, s *Options, times latencies) (p *replaying, err error) {
	p = &replaying{node: n, spec: s, times: times}
	for i := range s.Servers {
		p.ranks = append(p.ranks, stepvan.Rank(s.Workers+i))
	}
	if p.end, err = tensorOf(n, smallBytes); err != nil {
		return nil, err
	}
	layout := replay.Layout{DType: tensor.Float32, Fields: []replay.Field{{Name: "row", Width: int64(s.Push / columnBytes)}}}
	if p.learns() {
		p.ring, err = replay.NewRing(n.Peer(), replay.Options{
			Name: replayName, Layout: layout, Rows: p.rows(), Collectors: p.ranks, Memory: n.Memory(),
		})
		return p, err
	}
	b, err := replay.NewBuffer(layout, p.kept())
	if err != nil {
		return nil, err
	}
	for i := range p.kept() {
		if err := b.Add(ctx, p.row(i)); err != nil {
			return nil, err
		}
	}
	p.collector, err = replay.NewCollector(n.Peer(), replay.CollectorOptions{Name: replayName, Buffer: b})
	return p, err
}

// learns reports whether this peer is the learner.
func (p *replaying) learns() bool { return int(p.node.Rank()) < p.spec.Workers }

// rows is how many rows a batch has.
func (p *replaying) rows() int64 { return int64(p.spec.Pull / p.spec.Push) }

// kept is how many rows each collector keeps: as many as a large batch has.
func (p *replaying) kept() int { return int(keptRows(p.spec)) }

// keptRows is how many rows each collector keeps.
func keptRows(o *Options) int64 { return int64(max(o.Pull, replayBatch) / o.Push) }

// row is row i of every buffer.
func (p *replaying) row(i int) []byte {
	b := make([]byte, 0, p.spec.Push)
	for c := range int(p.spec.Push / columnBytes) {
		b = binary.LittleEndian.AppendUint32(b, uint32(i*9973+c))
	}
	return b
}

func (p *replaying) check(ctx context.Context, count int) error {
	if !p.learns() {
		return p.wait(ctx)
	}
	if err := p.node.Peer().Connect(ctx, p.ranks...); err != nil {
		return err
	}
	if err := checkVan(p.node.Connections(), p.spec.Van); err != nil {
		return err
	}
	for range count {
		p.tick++
		b, err := p.ring.Sample(ctx, p.tick, p.rows())
		if err != nil {
			return err
		}
		for i := range p.rows() {
			want := p.row(int(replay.Pick(b.Seed, uint64(i), uint64(p.kept()))))
			if got := b.Rows.Bytes()[int(i)*len(want):][:len(want)]; !bytes.Equal(got, want) {
				return errs.Invalid("row %d of the batch of tick %d is wrong", i, p.tick)
			}
		}
		if err := p.ring.AfterTick(); err != nil {
			return err
		}
	}
	return p.release(ctx)
}

func (p *replaying) run(ctx context.Context, count int) error {
	if !p.learns() {
		return p.wait(ctx)
	}
	take := p.once
	if p.spec.Inflight > 1 {
		take = p.ahead
	}
	for ; count > 0; count-- {
		p.tick++
		took, err := take(ctx)
		if err != nil {
			return err
		}
		p.times.add(took)
	}
	return p.release(ctx)
}

// once asks for a batch and waits for it. It returns how long that took.
func (p *replaying) once(ctx context.Context) (time.Duration, error) {
	began := trace.Now()
	_, err := p.ring.Sample(ctx, p.tick, p.rows())
	took := time.Duration(trace.Now() - began)
	return took, errors.Join(err, p.ring.AfterTick())
}

// ahead has a batch prepared, as while the learner computes, and then takes it. It returns how long the taking took.
func (p *replaying) ahead(ctx context.Context) (time.Duration, error) {
	if _, err := p.ring.StartPrepare(p.tick, p.rows(), 0); err != nil {
		return 0, err
	}
	if err := p.ring.WaitUntilReady(ctx, p.tick, p.rows()); err != nil {
		return 0, err
	}
	return p.once(ctx)
}

// release ends the waits of the collectors.
func (p *replaying) release(ctx context.Context) error {
	for _, rank := range p.ranks {
		h, err := p.node.Peer().Send(p.end.Strided(), rank, tagEnd)
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the learner has ended its round.
func (p *replaying) wait(ctx context.Context) error {
	h, err := p.node.Peer().Recv(p.end.Strided(), 0, tagEnd)
	if err != nil {
		return err
	}
	return errors.Join(h.Wait(ctx), p.collector.Err())
}

func (p *replaying) finish(context.Context) error { return nil }

// close ends the ring or the collector.
func (p *replaying) close(ctx context.Context) (err error) {
	if p.learns() {
		err = p.ring.Close(ctx)
	} else {
		err = p.collector.Close(ctx)
	}
	if err != nil {
		return fmt.Errorf("the replay: %w", err)
	}
	return nil
}
