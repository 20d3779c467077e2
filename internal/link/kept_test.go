package link

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
)

// keptBytes is the largest payload that tcpvan keeps beside the meta.
const keptBytes = 1 << 10

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
	n := newNode(t)
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
	m.Payload, m.Total, m.Flags = keptBytes+1, keptBytes+1, wire.FlagAckNow
	a.send(m, []byte("large"), bytes.Repeat([]byte("payload!"), keptBytes/8+1)[:keptBytes+1])
	require.Equal(t, "large payload!", <-h.got, "in pooled memory")
}
