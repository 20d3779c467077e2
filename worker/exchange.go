package worker

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// Exchange is one batch of tensors to push and to pull. The worker reads it only during [Worker.Do], so the caller
// may use the slices and the struct again at once. The memory of the tensors is borrowed until the handle completes.
// When the handle fails, servers may still reach that memory for a while: see Memory in the documentation of this
// package.
//
// In what one server gets, each push key occurs once, and each pull key occurs once. No two pulls share memory. A
// pull may share memory with a push to the server that writes the pull, but not with a push to another server.
type Exchange struct {
	Push     []tensor.Tensor
	PushKeys []tensor.Key // one per push tensor
	Pull     []tensor.Tensor
	PullKeys []tensor.Key // one per pull tensor

	// Variable marks pulls that a server may answer with fewer bytes than the tensor
	// has. [Handle.PullLen] tells how many bytes came. Give one mark per pull tensor, or none.
	Variable []bool

	// Routing of this exchange. [stepvan.DefaultRouting] is the routing of the worker.
	Routing stepvan.Routing
	// PushTo and PullTo name the server of each tensor, with Routing Named. A list of
	// one names the server of all. An empty list leaves each tensor to the owner of its key.
	PushTo, PullTo []stepvan.Rank
	// PairWithPush has the server that gets push i answer pull i. It needs routing
	// ByKey or Named, as many pulls as pushes, and no PullTo.
	PairWithPush bool

	// Stream is the stream that works on the tensors of an accelerator. The exchange begins when the work is over that
	// was queued to it before the call. The zero Stream is the default stream of their device. All tensors of one
	// exchange that an accelerator holds belong to one device.
	Stream device.Stream
	// Label names the exchange in traces and logs.
	Label string
}

// check refuses what no cluster could serve. It looks at e alone. at is the accelerator that holds tensors of e, or a
// device of the host.
func (e *Exchange) check() (at tensor.Device, err error) {
	if len(e.Push) != len(e.PushKeys) {
		return at, errs.Invalid("push_pull: push keys: wrong number (got %d, want %d): give one key per push tensor", len(e.PushKeys), len(e.Push))
	}
	if len(e.Pull) != len(e.PullKeys) {
		return at, errs.Invalid("push_pull: pull keys: wrong number (got %d, want %d): give one key per pull tensor", len(e.PullKeys), len(e.Pull))
	}
	if len(e.Push)+len(e.Pull) == 0 {
		return at, errs.Invalid("push_pull: tensors: the exchange has no tensors: give tensors to push or to pull")
	}
	if len(e.Variable) != 0 && len(e.Variable) != len(e.Pull) {
		return at, errs.Invalid("push_pull: marks of variable length: wrong number (got %d, want 0 or %d): give one mark per pull tensor, or none", len(e.Variable), len(e.Pull))
	}
	if err := checkTensors(&at, "push", e.Push, e.PushKeys); err != nil {
		return at, err
	}
	if err := checkTensors(&at, "pull", e.Pull, e.PullKeys); err != nil {
		return at, err
	}
	if s := e.Stream.Device; s != (tensor.Device{}) && s != at {
		return at, errs.Invalid("push_pull: stream %#x: it belongs to another device than the tensors (got %s, want %s): give a stream of their device", e.Stream.Handle, s, at)
	}
	return at, nil
}

// checkTensors looks at each tensor. Every tensor is contiguous: the constructors refuse others. at becomes the
// accelerator that holds some of them.
func checkTensors(at *tensor.Device, kind string, list []tensor.Tensor, keys []tensor.Key) error {
	for i := range list {
		t := &list[i]
		err := t.CheckHost()
		if err == nil {
			err = device.CheckHost(t)
		} else {
			err = checkAccelerator(at, t)
		}
		if err != nil {
			return tensorError(kind, i, keys[i], err)
		}
	}
	return nil
}

// checkAccelerator looks at a tensor whose bytes the processor cannot use, and notes the accelerator that holds it.
func checkAccelerator(at *tensor.Device, t *tensor.Tensor) error {
	if err := device.Check(t); err != nil {
		return err
	}
	d := t.Device()
	if !at.IsHost() && *at != d {
		return errs.Invalid("another accelerator holds other tensors of the exchange (got %s, want %s): give each device an exchange of its own", d, *at)
	}
	*at = d
	return nil
}

// checkRouting refuses lists of servers that do not fit the routing or the tensors.
func (e *Exchange) checkRouting(routing stepvan.Routing) error {
	switch routing {
	case stepvan.Broadcast, stepvan.ByKey, stepvan.Named:
	default:
		return errs.Invalid("push_pull: routing: %.32q is unknown: set broadcast, key or named", string(routing))
	}
	named := len(e.PushTo)+len(e.PullTo) > 0
	if named && routing != stepvan.Named {
		return errs.Invalid("push_pull: routing: it does not fit an exchange that names servers (got %s, want named): set routing to named", routing)
	}
	if e.PairWithPush && routing == stepvan.Broadcast {
		return errs.Invalid("push_pull: routing: it does not fit pulls that are paired with pushes (got broadcast, want key or named): set routing to key or named")
	}
	if e.PairWithPush && len(e.Push) != len(e.Pull) {
		return errs.Invalid("push_pull: pulls that are paired with pushes: wrong number (got %d, want %d): give one pull tensor per push tensor", len(e.Pull), len(e.Push))
	}
	if e.PairWithPush && len(e.PullTo) > 0 {
		return errs.Invalid("push_pull: pulls that are paired with pushes: servers are named for them (got %d, want 0): name servers for the pushes only", len(e.PullTo))
	}
	if err := checkNamed("push", e.PushTo, len(e.Push)); err != nil {
		return err
	}
	return checkNamed("pull", e.PullTo, len(e.Pull))
}

func checkNamed(kind string, named []stepvan.Rank, tensors int) error {
	if len(named) <= 1 || len(named) == tensors {
		return nil
	}
	return errs.Invalid("push_pull: servers named for the %s tensors: wrong number (got %d for %d tensors): name one server for all, or one per tensor", kind, len(named), tensors)
}

// check refuses a request that its server would not take: a key that occurs twice, or sizes beyond
// the limits.
func (r *request) check(limits *wire.Limits) error {
	x := r.exchange
	// A push and a pull may have the same key: programs of StepMesh count both from 0.
	if err := r.checkDistinct("push", x.pushKeys, r.pushes); err != nil {
		return err
	}
	if err := r.checkDistinct("pull", x.pullKeys, r.pulls); err != nil {
		return err
	}
	if n := max(len(r.pushes), len(r.pulls)); n > int(limits.Tensors) {
		return errs.Invalid("push_pull: request to %s: too many tensors (got %d, want at most %d): split the exchange", r.server.name, n, limits.Tensors)
	}
	if n := len(r.pushes) + len(r.pulls); n*wire.MaxDescriptorSize > int(limits.Meta) {
		return errs.Invalid("push_pull: request to %s: too many tensors for its descriptors (got %d, want at most %d): split the exchange", r.server.name, n, limits.Meta/wire.MaxDescriptorSize)
	}
	if n := totalBytes(x.push, r.pushes); n > limits.Message {
		return errs.Invalid("push_pull: request to %s: too many bytes to push (got %d, want at most %d): split the exchange", r.server.name, n, limits.Message)
	}
	if n := totalBytes(x.pull, r.pulls); n > limits.Message {
		return errs.Invalid("push_pull: request to %s: too many bytes to pull (got %d, want at most %d): split the exchange", r.server.name, n, limits.Message)
	}
	return nil
}

func totalBytes(list []tensor.Tensor, indexes []int) (n uint64) {
	for _, i := range indexes {
		n += uint64(list[i].Len())
	}
	return n
}

// fewKeys is the number of keys up to which comparing all pairs is quicker than a map.
const fewKeys = 24

// checkDistinct refuses a key that occurs twice.
func (r *request) checkDistinct(kind string, keys []tensor.Key, indexes []int) error {
	if len(indexes) <= fewKeys {
		for n, i := range indexes {
			for _, j := range indexes[:n] {
				if keys[i] == keys[j] {
					return duplicateKey(kind, keys[i])
				}
			}
		}
		return nil
	}
	if r.keys == nil {
		r.keys = make(map[tensor.Key]struct{}, len(indexes))
	}
	clear(r.keys)
	for _, i := range indexes {
		if _, ok := r.keys[keys[i]]; ok {
			return duplicateKey(kind, keys[i])
		}
		r.keys[keys[i]] = struct{}{}
	}
	return nil
}

func duplicateKey(kind string, k tensor.Key) error {
	return errs.Invalid("push_pull: %s key %d: it occurs twice in one exchange: give each %s tensor a key of its own", kind, k, kind)
}
