package link

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// keeping makes small messages come with their payload, whatever the van below does.
type keeping struct {
	van.Van
	placer van.Placer
	kept   map[van.Endpoint][][]byte
}

const keepBytes = 16

// keep wraps a VanMaker.
func keep(maker VanMaker) VanMaker {
	return func(p van.Placer, wake func()) (van.Van, error) {
		k := &keeping{placer: p, kept: map[van.Endpoint][][]byte{}}
		inner, err := maker(k, wake)
		k.Van = inner
		return k, err
	}
}

func small(h *wire.Header) bool {
	return h.Payload > 0 && h.Payload <= keepBytes && h.Payload == h.Total
}

func (k *keeping) Caps() van.Caps {
	c := k.Van.Caps()
	c.InMessage = keepBytes
	return c
}

func (k *keeping) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	if !small(h) {
		return k.placer.Place(ep, h, meta, dst)
	}
	b := make([]byte, h.Payload)
	k.kept[ep] = append(k.kept[ep], b)
	return append(dst, b), nil
}

func (k *keeping) Poll(events []van.Event, all bool) int {
	n := k.Van.Poll(events, all)
	for i := range events[:n] {
		if e := &events[i]; e.Kind == van.EventMessage && small(&e.Delivery.Header) {
			e.Delivery.Payload, k.kept[e.Endpoint] = k.kept[e.Endpoint][0], k.kept[e.Endpoint][1:]
		}
	}
	return n
}

// taker is a Handler that keeps every second message for a while.
type taker struct {
	sink
	held []*Inbound
	got  chan string
}

func (h *taker) Receive(m *Inbound) (kept bool) {
	h.got <- string(m.Meta) + " " + string(m.Payload[:min(8, len(m.Payload))])
	if m.Header.Sequence%2 == 0 {
		h.held = append(h.held, m)
		return true
	}
	for _, m := range h.held {
		m.Release()
	}
	h.held = nil
	return false
}

func TestKeptAndPlacedMessagesAreReceivedAlike(t *testing.T) {
	n := newNode(t, keep)
	h := &taker{sink: sink{node: n, lost: make(chan error, 16)}, got: make(chan string, 1)}
	a := attack(t, listen(t, n, h))
	a.hello()
	for seq := uint64(1); seq <= 50; seq++ {
		m := data(seq)
		m.Payload, m.Total = 8, 8
		a.send(m, []byte("meta"), []byte("payload!"))
		require.Equal(t, "meta payload!", <-h.got)
	}
	m := data(51)
	m.Payload, m.Total, m.Flags = keepBytes+1, keepBytes+1, wire.FlagAckNow
	a.send(m, []byte("large"), bytes.Repeat([]byte("payload!"), keepBytes/8+1)[:keepBytes+1])
	require.Equal(t, "large payload!", <-h.got, "in pooled memory")
}
