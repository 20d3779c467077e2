package bus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
)

// rankEntry is what a rank posts on the board about itself, for all ranks of a pair to see.
type rankEntry struct {
	agent      stepvan.Rank
	client     uint64
	pair, side string
	attempt    uint64
	trial      uint64 // of all ranks of the pair to open it, from 0 on. After they did not agree, a higher one follows
	post       uint64 // tells the times apart that the rank has posted this
	remote     string
	size       int
	rank       int // that the client says it has among its job; -1: it does not say
	mesh       []byte
	placements []byte
	layout     *layout.Layout
	state      entryState
}

// maxTrial bounds what others may have an agent count from.
const maxTrial = 1 << 62

type entryState uint8

const (
	entryStands entryState = iota
	entryFailed            // the ranks do not agree. It stays for a while, for ranks that come late
	entryGone              // its client has ended
)

func (n *rankEntry) key() string {
	return fmt.Sprintf("%sm/%s/%s/%d.%d", boardPrefix, n.pair, n.side, n.agent, n.client)
}

// String reads "training rank 1 (peer 3)".
func (n *rankEntry) String() string { return rankName(n.side, n.rank, n.agent) }

func rankName(side string, rank int, agent stepvan.Rank) string {
	if rank < 0 {
		return fmt.Sprintf("%s (peer %d)", side, agent)
	}
	return fmt.Sprintf("%s rank %d (peer %d)", side, rank, agent)
}

// layoutName describes the layout.
func (n *rankEntry) layoutName() string {
	if n.layout == nil {
		return "whole tensors"
	}
	return n.layout.String()
}

func (n *rankEntry) encode() []byte {
	b := msgp.AppendArrayHeader(nil, 9)
	b = msgp.AppendUint64(b, n.attempt)
	b = msgp.AppendUint64(b, n.trial)
	b = msgp.AppendUint64(b, n.post)
	b = msgp.AppendString(b, n.remote)
	b = msgp.AppendUint64(b, uint64(n.size))
	b = msgp.AppendUint64(b, uint64(n.rank+1))
	b = msgp.AppendBytes(b, n.mesh)
	b = msgp.AppendBytes(b, n.placements)
	return msgp.AppendUint64(b, uint64(n.state))
}

// readEntry reads the entry of an agent. It trusts nothing.
func readEntry(agent stepvan.Rank, key string, value []byte) (n rankEntry, err error) {
	f := payloadFields("entry of a rank", value)
	parts := strings.Split(key, "/")
	if len(parts) != 5 || parts[1] != "m" {
		return n, errs.Protocol("key", 0, "not one of a rank (got %.80q)", key)
	}
	owner, client, _ := strings.Cut(parts[4], ".")
	if n.client, err = strconv.ParseUint(client, 10, 64); err != nil || owner != strconv.Itoa(int(agent)) {
		return n, errs.Protocol("key", 0, "not one of peer %d (got %.80q)", agent, key)
	}
	n.agent, n.pair, n.side = agent, parts[2], parts[3]
	f.tuple(9)
	n.attempt, n.trial, n.post = f.nextNumber(1<<64-1), f.nextNumber(maxTrial), f.nextNumber(1<<64-1)
	n.remote, n.size = f.nextText(), int(f.nextNumber(maxWorld))
	n.rank = int(f.nextNumber(maxWorld)) - 1
	n.mesh, n.placements = f.nextBytes(), f.nextBytes()
	n.state = entryState(f.nextNumber(uint64(entryGone)))
	f.endValue()
	if f.err != nil {
		return n, f.err
	}
	c := InitPair{PairName: n.pair, LocalName: n.side, ExpectedWorldSize: n.size, RemoteName: n.remote, MeshShape: n.mesh, Placements: n.placements}
	if err := c.Check(); err != nil {
		return n, err
	}
	n.layout, err = c.layout()
	return n, err
}
