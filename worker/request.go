package worker

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Exchange is one batch of tensors to push and to pull. The worker reads it
// during the call only; the slices and the struct may be used again at once. The
// memory of the tensors is borrowed until the handle completes and, when that fails, until no server reaches it: see
// the package's Memory.
//
// Within what one server gets, a push key occurs once, and so does a pull key. Pulls share no memory. A pull may share
// memory with a push to the server that writes it, and with none to another.
type Exchange struct {
	Push     []tensor.Tensor
	PushKeys []tensor.Key // one per push tensor
	Pull     []tensor.Tensor
	PullKeys []tensor.Key // one per pull tensor

	// Variable marks pulls that may be answered with fewer bytes than the tensor
	// has; Handle.PullLen tells how many. Nil marks none, else one per pull tensor.
	Variable []bool

	// Routing of this request; Default is that of the worker.
	Routing Routing
	// PushTo and PullTo name the server of each tensor, with Routing Named. A list of
	// one names the server of all. Empty: the owner of each key.
	PushTo, PullTo []stepvan.Rank
	// PairWithPush has pull i answered by the server that push i goes to. With
	// ByKey or Named, as many pulls as pushes, and no PullTo.
	PairWithPush bool

	// Label names the request in traces and logs.
	Label string
}

// PushPull pushes and pulls with the worker's routing: see Do.
func (w *Worker) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	return w.Do(&Exchange{Push: push, PushKeys: pushKeys, Pull: pull, PullKeys: pullKeys})
}
