package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// transfers is a client of the tensor bus with one registered tensor. One side sends it in every round, the other one
// receives it. One goroutine uses it.
type transfers struct {
	client     *bus.Client
	sends      bool
	size       Size
	tensor     tensor.Tensor
	bytes      []byte
	round      bus.Transfer
	seed       byte // of the bytes of the last checked round, which both sides count
	times      latencies
	registered bool
}

// Names on the bus.
const (
	busPair     = "weights"
	busBatch    = "step"
	busSender   = "training"
	busReceiver = "inference"
)

func newTransfers(c *bus.Client, sends bool, size Size, times latencies) *transfers {
	kind := bus.Recv
	if sends {
		kind = bus.Send
	}
	return &transfers{client: c, sends: sends, size: size, round: bus.Transfer{BatchID: busBatch, Type: kind}, times: times}
}

// register opens the pair and registers the tensor, once. It waits for the other side.
func (t *transfers) register(ctx context.Context) (err error) {
	if t.registered {
		return nil
	}
	if t.tensor, err = t.client.Empty(ctx, tensor.Uint8, int64(t.size)); err != nil {
		return err
	}
	if t.bytes, err = tensor.As[byte](t.tensor); err != nil {
		return err
	}
	clear(t.bytes)
	pair := bus.InitPair{PairName: busPair, LocalName: busSender, RemoteName: busReceiver, ExpectedWorldSize: 1}
	if !t.sends {
		pair.LocalName, pair.RemoteName = pair.RemoteName, pair.LocalName
	}
	if _, err := t.client.Do(ctx, &pair); err != nil {
		return err
	}
	if err := t.client.Register(ctx, busBatch, []bus.Tensor{{Pair: busPair, View: t.tensor.Strided()}}); err != nil {
		return err
	}
	t.registered = true
	return nil
}

// check runs rounds, and compares all bytes that have come.
func (t *transfers) check(ctx context.Context, count int) error {
	if err := t.register(ctx); err != nil {
		return err
	}
	for range count {
		t.seed++
		if t.sends {
			writeSeed(t.bytes, t.seed)
		} else {
			clear(t.bytes)
		}
		if err := t.once(ctx); err != nil {
			return err
		}
		if at := wrongByte(t.bytes, t.seed); at >= 0 {
			return errs.Invalid("byte %d of the tensor is wrong after round %d", at, t.seed)
		}
	}
	return nil
}

// run runs rounds, and times each.
func (t *transfers) run(ctx context.Context, count int) error {
	t.times.reset()
	for ; count > 0; count-- {
		began := trace.Now()
		if err := t.once(ctx); err != nil {
			return err
		}
		t.times.add(time.Duration(trace.Now() - began))
	}
	return nil
}

func (t *transfers) once(ctx context.Context) error {
	t.round.Semaphore = "" // each round has one of its own
	_, err := t.client.Do(ctx, &t.round)
	return err
}

// close ends the client, and the tensor after it.
func (t *transfers) close(ctx context.Context) error {
	if err := t.client.Close(ctx); err != nil {
		return fmt.Errorf("the client of the bus: %w", err)
	}
	return nil
}
