package worker

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// check refuses what no cluster could serve. It looks at r alone.
func (r *Exchange) check() error {
	if len(r.Push) != len(r.PushKeys) {
		return errs.Invalid("push_pull: %d push tensors with %d keys; give one key per tensor", len(r.Push), len(r.PushKeys))
	}
	if len(r.Pull) != len(r.PullKeys) {
		return errs.Invalid("push_pull: %d pull tensors with %d keys; give one key per tensor", len(r.Pull), len(r.PullKeys))
	}
	if len(r.Push)+len(r.Pull) == 0 {
		return errs.Invalid("push_pull: the request is empty; give tensors to push or to pull")
	}
	if len(r.Variable) != 0 && len(r.Variable) != len(r.Pull) {
		return errs.Invalid("push_pull: %d marks of variable length for %d pull tensors; give one per tensor or none", len(r.Variable), len(r.Pull))
	}
	if err := checkTensors("push", r.Push, r.PushKeys); err != nil {
		return err
	}
	return checkTensors("pull", r.Pull, r.PullKeys)
}

// checkTensors looks at each tensor. Every tensor is contiguous: the constructors refuse others.
func checkTensors(what string, list []tensor.Tensor, keys []tensor.Key) error {
	for i := range list {
		if err := list[i].Check(); err != nil {
			return tensorFault(what, i, keys[i], err)
		}
	}
	return nil
}

// checkNames refuses lists of servers that do not fit the routing or the tensors.
func (r *Exchange) checkNames(routing Routing) error {
	switch routing {
	case Broadcast, ByKey, Named:
	default:
		return errs.Invalid("push_pull: routing %.32q is unknown: set broadcast, key or named", string(routing))
	}
	named := len(r.PushTo)+len(r.PullTo) > 0
	if named && routing != Named {
		return errs.Invalid("push_pull: servers are named, but routing is %s; set routing to named", routing)
	}
	if r.PairWithPush && routing == Broadcast {
		return errs.Invalid("push_pull: pulls are paired with pushes, but routing is broadcast; set routing to key or named")
	}
	if r.PairWithPush && (len(r.Push) != len(r.Pull) || len(r.PullTo) > 0) {
		return errs.Invalid("push_pull: %d pulls cannot be paired with %d pushes; give as many, and no servers for the pulls", len(r.Pull), len(r.Push))
	}
	if err := checkNamed("push", r.PushTo, len(r.Push)); err != nil {
		return err
	}
	return checkNamed("pull", r.PullTo, len(r.Pull))
}

func checkNamed(what string, to []stepvan.Rank, n int) error {
	if len(to) <= 1 || len(to) == n {
		return nil
	}
	return errs.Invalid("push_pull: %d servers named for %d %s tensors; name one per tensor, or one for all", len(to), n, what)
}

// checkPart refuses a part that its server would not take: a key that occurs twice, or sizes beyond
// the limits.
func (w *Worker) checkPart(p *part) error {
	if err := p.checkKeys(); err != nil {
		return err
	}
	lim := &w.limits
	if n := max(len(p.pushes), len(p.pulls)); n > int(lim.Tensors) {
		return errs.Invalid("push_pull: %d tensors for %s, at most %d in one request; split it", n, p.server.name, lim.Tensors)
	}
	if n := len(p.pushes) + len(p.pulls); n*wire.MaxDescriptorSize > int(lim.Meta) {
		return errs.Invalid("push_pull: the descriptors of %d tensors exceed %d bytes; split the request", n, lim.Meta)
	}
	if n := sum(p.call.push, p.pushes); n > lim.Message {
		return errs.Invalid("push_pull: %d bytes to push to %s, at most %d in one request; split it", n, p.server.name, lim.Message)
	}
	if n := sum(p.call.pull, p.pulls); n > lim.Message {
		return errs.Invalid("push_pull: %d bytes to pull from %s, at most %d in one request; split it", n, p.server.name, lim.Message)
	}
	return nil
}

func sum(list []tensor.Tensor, of []int) (n uint64) {
	for _, i := range of {
		n += uint64(list[i].Len())
	}
	return n
}

// fewKeys is the number of keys up to which comparing all pairs beats a map.
const fewKeys = 24

// checkKeys refuses a key that two pushes have, or two pulls. A push and a pull may have the same: StepMesh programs count
// both from 0.
func (p *part) checkKeys() error {
	if err := p.checkDistinct(p.call.pushKeys, p.pushes); err != nil {
		return err
	}
	return p.checkDistinct(p.call.pullKeys, p.pulls)
}

func (p *part) checkDistinct(keys []tensor.Key, of []int) error {
	if len(of) > fewKeys {
		return p.checkMany(keys, of)
	}
	for n, i := range of {
		for _, j := range of[:n] {
			if keys[i] == keys[j] {
				return twice(keys[i])
			}
		}
	}
	return nil
}

func (p *part) checkMany(keys []tensor.Key, of []int) error {
	if p.seen == nil {
		p.seen = make(map[tensor.Key]struct{}, len(of))
	}
	clear(p.seen)
	for _, i := range of {
		if _, ok := p.seen[keys[i]]; ok {
			return twice(keys[i])
		}
		p.seen[keys[i]] = struct{}{}
	}
	return nil
}

func twice(k tensor.Key) error {
	return errs.Invalid("push_pull: key %d occurs twice in one request; every push needs a key of its own, and every pull", k)
}
