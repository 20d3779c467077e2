package particle

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// lane has the frames of another loop whose values travel apart, and those behind them. They are handled in their
// order. Loop.mu guards it.
type lane struct {
	remote *remote
	queue  []*arrival
	begun  int   // how many of these have begun
	bytes  int64 // of the values that travel at the moment
	pumps  bool
}

// arrival is a frame that has come. Its value may be on its way.
type arrival struct {
	frame   frame
	content *content
	err     error
	whole   bool
	parts   map[int]peer.Handle // transfers of the value, by their place
}

// maxQueue bounds the frames that wait in a lane. The other loop has no more calls without a result.
const maxQueue = 1 << 20

// add takes a frame. The frame is the lane's.
func (q *lane) add(f frame) {
	if len(q.queue) >= maxQueue {
		q.remote.lose(lostLoop(q.remote.name, errs.Protocol("frame", 0, "%d frames of a loop wait", maxQueue)))
		return
	}
	q.queue = append(q.queue, &arrival{frame: f})
	q.pump()
}

// pump begins the transfers that there is room for, and handles what is whole.
func (q *lane) pump() {
	if q.pumps {
		return
	}
	q.pumps = true
	for q.begun < len(q.queue) && q.begin(q.queue[q.begun]) {
		q.begun++
	}
	for len(q.queue) > 0 && q.queue[0].whole {
		a := q.queue[0]
		q.queue[0] = nil
		q.queue = q.queue[1:]
		q.begun--
		q.remote.arrived(a)
	}
	q.pumps = false
}

// begin makes the value of an arrival, or begins to receive it. It reports whether there was room.
func (q *lane) begin(a *arrival) bool {
	l, f := q.remote.loop, &a.frame
	if f.flags&flagApart == 0 || a.err != nil {
		a.whole = true
		if f.flags&flagView == 0 && f.code == codeOK {
			a.content, a.err = l.opt.unpack(f)
		}
		return true
	}
	size := f.bytes + f.tensorBytes()
	if size > l.opt.ValueBytes {
		a.whole = true
		discard(l.peer, q.remote.rank, f, nil)
		a.err = fail(codeInvalid, "a value of %d bytes is too large for the loop of %s (want at most %d): send several, or raise Options.ValueBytes", size, l.name, l.opt.ValueBytes)
		return true
	}
	if q.bytes > 0 && size > l.opt.ValueBytes-q.bytes {
		return false
	}
	p := newContent(nil, f.flags&flagPickled != 0)
	p.data = make([]byte, f.bytes)
	err := l.opt.empty(p, f.forms)
	a.parts = map[int]peer.Handle{}
	for i, part := range p.parts() {
		if err != nil {
			break
		}
		if part.Len() == 0 {
			continue
		}
		var h peer.Handle
		if h, err = l.peer.Recv(part, q.remote.rank, peer.Tag(f.tag)+peer.Tag(i)); err == nil {
			a.parts[i] = h
		}
	}
	if err != nil {
		q.fail(a, err)
	}
	q.bytes += size
	l.tasks.running++
	go q.receive(a, p, slices.Collect(maps.Values(a.parts)), size)
	return true
}

// fail gives up a value for which there is no room here. What has begun ends by itself.
func (q *lane) fail(a *arrival, err error) {
	l := q.remote.loop
	a.err = failureOf(fmt.Errorf("the loop of %s has no room for the value: %w", l.name, err))
	a.giveUp(q.remote)
}

// giveUp has the transfers of a value fail that have not begun.
func (a *arrival) giveUp(r *remote) {
	p := r.loop.peer
	for i, h := range a.parts {
		if p.Cancel(h) {
			delete(a.parts, i)
		}
	}
	discard(p, r.rank, &a.frame, a.parts)
}

// discard has the transfers of a value fail at their sender, except some, because nobody takes the value. A receive
// that fits none of them does that.
func discard(p *peer.Peer, from stepvan.Rank, f *frame, except map[int]peer.Handle) {
	if f.flags&flagApart == 0 {
		return
	}
	sizes := make([]int64, 0, len(f.forms)+1)
	if f.bytes > 0 {
		sizes = append(sizes, f.bytes)
	}
	for i := range f.forms {
		sizes = append(sizes, f.forms[i].bytes())
	}
	for i, n := range sizes {
		if _, received := except[i]; received || n == 0 {
			continue
		}
		t, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(1), make([]byte, 1))
		if err == nil {
			_, _ = p.Recv(t.Strided(), from, peer.Tag(f.tag)+peer.Tag(i)) // without room the transfers end with the peer
		}
	}
}

// receive waits for the transfers of a value.
func (q *lane) receive(a *arrival, p *content, handles []peer.Handle, size int64) {
	l := q.remote.loop
	defer l.opt.Recover()
	err := awaitAll(handles)
	l.mu.Lock()
	defer l.unlock()
	l.tasks.end(l)
	q.bytes -= size
	a.whole = true
	if a.err != nil {
		err = a.err
	}
	if err == nil && a.frame.flags&flagPickled != 0 {
		err = q.remote.check(&a.frame, p.data)
	}
	if err != nil || q.remote.lost != nil {
		l.later(p)
		a.err = failureOf(err)
	} else {
		a.content = p
	}
	q.pump()
}

// end drops all frames.
func (q *lane) end() {
	for _, a := range q.queue {
		q.remote.loop.later(a.content)
		a.content = nil
		if !a.whole {
			a.giveUp(q.remote)
		}
	}
	q.queue, q.begun = nil, 0
}

// parts are what travels apart: the data, if there are any, and the tensors.
func (p *content) parts() (list []tensor.Strided) {
	if n := int64(len(p.data)); n > 0 {
		t, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(n), p.data)
		if err == nil {
			list = append(list, t.Strided())
		}
	}
	return append(list, p.tensors...)
}

// appendElements appends the elements of a tensor.
func appendElements(b []byte, v *tensor.Strided) ([]byte, error) {
	if t, ok := v.Contiguous(); ok {
		return append(b, t.Bytes()...), nil
	}
	f := formOf(v)
	piece := make([]byte, f.bytes())
	t, err := tensor.FromBytes(f.dtype, f.shape, piece)
	if err == nil {
		to := t.Strided()
		err = to.CopyFrom(v)
	}
	if err != nil {
		return b, err
	}
	return append(b, piece...), nil
}

// unpack makes the value of a frame that has it within.
func (o *Options) unpack(f *frame) (*content, error) {
	p := newContent(f.data, f.flags&flagPickled != 0)
	if len(f.forms) == 0 {
		return p, nil
	}
	if err := o.empty(p, f.forms); err != nil {
		p.drop()
		return nil, failureOf(err)
	}
	from := f.packed
	for i := range p.tensors {
		t, _ := p.tensors[i].Contiguous()
		from = from[copy(t.Bytes(), from):]
	}
	return p, nil
}
