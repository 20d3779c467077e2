package postoffice

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// maxMessage is the largest body of a control message, in bytes.
const maxMessage = 64 << 10

// fullMessage is the size from which a list continues in the next message. It leaves room for what is around the list.
const fullMessage = maxMessage - 4<<10

// Limits of what a peer may say in a message.
const (
	maxAddresses = 1100 // DMLC_NUM_PORTS allows 1024 ports, and there are Unix sockets
	maxAddress   = 512
	maxAllBytes  = 48 << 10 // of all addresses of an instance: they travel in one message
	maxHost      = 256
	maxSettings  = 256
	maxSetting   = 1024 // of name, and of value
)

// encode makes the frame of a message. Bodies are built by this package from
// checked parts, so they can always be encoded.
func encode(o op, request uint64, body any) frame {
	if body == nil {
		return frame{op: o, request: request}
	}
	return frame{op: o, request: request, body: marshal(body)}
}

// marshal is json.Marshal that leaves <, > and & alone, so that text does not grow much.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the bodies hold nothing that cannot be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// pages encodes items and cuts the list where a message would become too large.
func pages[T any](items []T) [][]json.RawMessage {
	var out [][]json.RawMessage
	size := fullMessage
	for _, it := range items {
		b := marshal(it)
		if size+len(b)+1 > fullMessage {
			out, size = append(out, nil), 0
		}
		last := len(out) - 1
		out[last], size = append(out[last], b), size+len(b)+1
	}
	return out
}

// checker is a body with rules beyond its types.
type checker interface{ check() error }

// decode reads a body of a peer into v and checks it. Fields that this version
// does not know are ignored. Every error is a *stepvan.ProtocolError.
func decode(f frame, v any) error {
	if len(f.body) > maxMessage {
		return malformed(f.op, "the body is too long (got %d bytes, want at most %d)", len(f.body), maxMessage)
	}
	if err := json.Unmarshal(f.body, v); err != nil {
		return malformed(f.op, "%s", text.Line(err.Error(), 200))
	}
	if c, ok := v.(checker); ok {
		if err := c.check(); err != nil {
			return malformed(f.op, "%v", err)
		}
	}
	return nil
}

// receive hands the body of a message to a function.
func receive[T any](f frame, to func(*T) error) error {
	var b T
	if err := decode(f, &b); err != nil {
		return err
	}
	return to(&b)
}

func malformed(o op, format string, args ...any) error {
	return &stepvan.ProtocolError{Field: fmt.Sprintf("control message %d", o), Reason: fmt.Sprintf(format, args...)}
}

// inRange refuses a number of a peer that is out of range.
func inRange(what string, got, low, high int) error {
	if got < low || got > high {
		return fmt.Errorf("%s: out of range (got %d, want %d to %d)", what, got, low, high)
	}
	return nil
}

func (b *joinBody) check() error {
	b.Host = text.Line(b.Host, maxHost)
	for _, s := range b.Shared {
		if len(s.Name) > maxSetting || len(s.Value) > maxSetting {
			return fmt.Errorf("setting %.64q: too long (want at most %d bytes)", s.Name, maxSetting)
		}
	}
	return cmp.Or(
		checkRole(b.Role), checkAddresses(b.Addresses), inRange("settings", len(b.Shared), 0, maxSettings),
		inRange("rank", int(b.Rank), int(AnyRank), maxRank), inRange("instance", int(b.Instance), int(AnyLocalRank), maxRank),
	)
}

func checkAddresses(a []string) error {
	all := 0
	for _, s := range a {
		if s == "" || len(s) > maxAddress || text.Line(s, maxAddress) != s || strings.ContainsAny(s, `"\`) {
			return fmt.Errorf("address: not one of stepvan (got %.64q, want at most %d printable characters)", s, maxAddress)
		}
		all += len(s) + len(`"",`)
	}
	if all > maxAllBytes {
		return fmt.Errorf("addresses: too long (got %d bytes together, want at most %d): lower DMLC_NUM_PORTS", all, maxAllBytes)
	}
	return inRange("addresses", len(a), 0, maxAddresses)
}

func (b *waitingBody) check() error {
	b.Text = text.Line(b.Text, maxText)
	return nil
}

func (b *startBody) check() error {
	if b.Epoch == 0 || b.Peers < 0 {
		return fmt.Errorf("epoch or number of peers: wrong (got %d and %d, want at least 1 and 0)", b.Epoch, b.Peers)
	}
	return b.Self.check()
}

func (b *peersBody) check() error { return checkEach(b.Nodes, (*Peer).check) }

func (b *goneBody) check() error { return checkEach(b.Nodes, (*goneNode).check) }

func checkEach[T any](all []T, check func(*T) error) error {
	for i := range all {
		if err := check(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *Peer) check() error {
	n.Host = text.Line(n.Host, maxHost)
	return cmp.Or(
		checkRole(n.Role), checkAddresses(n.Addresses), inRange("id", int(n.ID), 1, math.MaxUint32), inRange("rank", int(n.Rank), 0, maxRank),
		inRange("node", n.NodeRank, 0, maxRank), inRange("instance", int(n.LocalRank), 0, maxRank),
	)
}

func (n *goneNode) check() error {
	n.Host, n.Reason = text.Line(n.Host, maxHost), text.Line(n.Reason, maxText)
	return cmp.Or(checkRole(n.Role), inRange("id", int(n.ID), 1, math.MaxUint32), inRange("rank", int(n.Rank), 0, maxRank))
}
