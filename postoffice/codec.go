package postoffice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// maxMessage is the largest body of a control message, in bytes.
const maxMessage = 64 << 10

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
	const full = maxMessage - 4<<10
	var out [][]json.RawMessage
	size := full
	for _, it := range items {
		b := marshal(it)
		if size+len(b)+1 > full {
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
		return malformed(f.op, "%d bytes, limit %d", len(f.body), maxMessage)
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

func (b *joinBody) check() error {
	if err := checkRole(b.Role); err != nil {
		return err
	}
	switch {
	case b.Rank < AnyRank || b.Rank > maxRank:
		return fmt.Errorf("rank %d", b.Rank)
	case b.Instance < AnyLocalRank || b.Instance > maxRank:
		return fmt.Errorf("instance %d", b.Instance)
	case len(b.Shared) > maxSettings:
		return fmt.Errorf("%d settings, limit %d", len(b.Shared), maxSettings)
	}
	for _, s := range b.Shared {
		if len(s.Name) > maxSetting || len(s.Value) > maxSetting {
			return fmt.Errorf("setting %.64q is longer than %d bytes", s.Name, maxSetting)
		}
	}
	b.Host = text.Line(b.Host, maxHost)
	return checkAddresses(b.Addresses)
}

func checkAddresses(a []string) error {
	if len(a) > maxAddresses {
		return fmt.Errorf("%d addresses, limit %d", len(a), maxAddresses)
	}
	all := 0
	for _, s := range a {
		if s == "" || len(s) > maxAddress || text.Line(s, maxAddress) != s || strings.ContainsAny(s, `"\`) {
			return fmt.Errorf("address %.64q", s)
		}
		all += len(s) + len(`"",`)
	}
	if all > maxAllBytes {
		return fmt.Errorf("addresses of %d bytes together, limit %d: lower DMLC_NUM_PORTS", all, maxAllBytes)
	}
	return nil
}

func (b *waitingBody) check() error {
	b.Text = text.Line(b.Text, maxText)
	return nil
}

func (b *startBody) check() error {
	if b.Epoch == 0 || b.Peers < 0 {
		return fmt.Errorf("epoch %d with %d peers", b.Epoch, b.Peers)
	}
	return b.Self.check()
}

func (b *peersBody) check() error {
	for i := range b.Nodes {
		if err := b.Nodes[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (n *Peer) check() error {
	if err := checkRole(n.Role); err != nil {
		return err
	}
	if n.ID == 0 || n.Rank < 0 || n.Rank > maxRank || n.NodeRank < 0 || n.LocalRank < 0 {
		return fmt.Errorf("node %d: %s rank %d, node %d, instance %d", n.ID, n.Role, n.Rank, n.NodeRank, n.LocalRank)
	}
	n.Host = text.Line(n.Host, maxHost)
	return checkAddresses(n.Addresses)
}

func (b *goneBody) check() error {
	for i := range b.Nodes {
		n := &b.Nodes[i]
		if err := checkRole(n.Role); err != nil {
			return err
		}
		if n.ID == 0 || n.Rank < 0 {
			return fmt.Errorf("node %d: %s rank %d", n.ID, n.Role, n.Rank)
		}
		n.Host, n.Reason = text.Line(n.Host, maxHost), text.Line(n.Reason, maxText)
	}
	return nil
}
