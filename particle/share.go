package particle

import (
	"context"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// share is memory of a particle of which others get views. Loop.mu guards it.
type share struct {
	loop    *Loop
	data    []byte
	tensors []tensor.Strided
	lent    func()
	windows []*peer.Window // of the tensors; nil before another loop has got a view
	out     int            // views that are not given back
	retired bool           // it was replaced
}

// Share gives the memory of which others get views: parameters and gradients of a particle of this loop. v.Data
// describes it to them. It replaces what was given before. Call it in a hook of the device of the particle, or before
// the particle has got a message. A value without data and tensors ends it.
//
// The tensors are not copied. v.Lent is called when the memory was replaced, and no view of it is out. Other processes
// map tensors in memory of an allocator, and get copies of others. Few large tensors are faster than many small ones.
func (l *Loop) Share(id ID, v Value) error {
	if err := l.opt.checkValue("share", &v); err != nil {
		return err
	}
	held, err := retain(v.Tensors)
	if err != nil {
		return errs.Invalid("share: %v", err)
	}
	s := &share{loop: l, data: slices.Clone(v.Data), tensors: held, lent: v.Lent}
	l.mu.Lock()
	defer l.unlock()
	x, err := l.own("share", id)
	if err == nil {
		err = l.checkOver("share")
	}
	if err != nil {
		release(held)
		return err
	}
	old := x.share
	x.share = nil
	if len(v.Data)+len(v.Tensors) > 0 {
		x.share = s
	} else {
		s.retire()
	}
	old.retire()
	x.device.dispatch()
	return nil
}

// Views is how many views of the memory of the last [Loop.Share] are out. Ask in a hook of the device, before each
// write to that memory. With any view out, leave it as it is: copy it to other memory, write there, and share that. No
// view goes out while a hook has the turn.
func (l *Loop) Views(id ID) (int, error) {
	l.mu.Lock()
	defer l.unlock()
	x, err := l.own("views", id)
	if err != nil || x.share == nil {
		return 0, err
	}
	return x.share.out, nil
}

// retire ends a share, once no view of it is out. Under mu.
func (s *share) retire() {
	if s == nil {
		return
	}
	s.retired = true
	s.checkUnused()
}

// gaveBack notes that a view was given back.
func (s *share) gaveBack() {
	s.out--
	s.checkUnused()
}

// checkUnused frees the memory when it is not needed any more.
func (s *share) checkUnused() {
	if !s.retired || s.out > 0 {
		return
	}
	windows := s.windows
	s.windows = nil
	s.loop.tasks.shares++
	go func() { // the windows wait for others
		l := s.loop
		defer l.opt.Recover()
		for _, w := range windows {
			_ = w.Close(context.Background()) // an error says that the node is over, and nobody reaches the memory
		}
		release(s.tensors)
		if s.lent != nil {
			s.lent()
		}
		l.mu.Lock()
		defer l.unlock()
		l.tasks.shares--
		l.tasks.check(l)
	}()
}

// maxViews bounds the views of a loop that are out.
const maxViews = 1 << 16

// answerView answers a question for a view. err says why nobody gets it. Under mu.
func (c *Call) answerView(err error) {
	l := c.loop
	x := l.particles[c.to]
	switch {
	case err != nil:
	case x == nil || x.share == nil:
		err = fail(codeInvalid, "the particle shares nothing: call Share at its loop")
	case c.future != nil:
		c.future.finish(x.share.view(), nil)
		return
	default:
		if err = c.remote.show(c, x.share); err == nil {
			return
		}
	}
	c.answer(nil, failureOf(err))
}

// view is a view for this process.
func (s *share) view() *content {
	p := newContent(s.data, false)
	p.tensors, p.view = s.tensors, true
	s.out++
	p.free = func() {
		s.loop.mu.Lock()
		defer s.loop.unlock()
		s.gaveBack()
	}
	return p
}

// show sends another loop a view.
func (r *remote) show(c *Call, s *share) error {
	l := r.loop
	if r.lost != nil {
		return r.lost // nobody would give the view back
	}
	if len(r.views) >= maxViews {
		return fail(codeFull, "%d views are out: give some back", maxViews)
	}
	for i := len(s.windows); i < len(s.tensors); i++ {
		w, err := l.peer.Expose(s.tensors[i], peer.WindowOptions{})
		if err != nil {
			return err // the next question exposes the rest
		}
		s.windows = append(s.windows, w)
	}
	r.shown++
	f := frame{op: opReply, flags: flagView, number: c.own().number, tag: r.shown, data: s.data}
	for i := range s.tensors {
		f.forms = append(f.forms, formOf(&s.tensors[i]))
		f.tokens = append(f.tokens, s.windows[i].Token())
	}
	if n := len(f.append(nil)); n > peer.MaxMail {
		return errs.Invalid("share: value: it takes too many bytes to describe (got %d, want at most %d): share fewer and larger tensors", n, peer.MaxMail)
	}
	s.out++
	r.views[r.shown] = s
	r.send(&outgoing{frame: f})
	return nil
}

// freed notes that the other loop has given a view back.
func (r *remote) freed(number uint64) {
	if s := r.views[number]; s != nil {
		delete(r.views, number)
		s.gaveBack()
	}
}

// see makes a view of what another loop has sent, on a goroutine that waits for the windows. Under mu.
func (r *remote) see(f *Future, m *frame) {
	l := r.loop
	g := &gaze{loop: l, remote: r, frame: m, content: newContent(m.data, false)}
	g.content.view = true
	l.tasks.running++
	go func() {
		defer l.opt.Recover()
		err := g.look()
		l.mu.Lock()
		defer l.unlock()
		l.tasks.end(l)
		g.content.free = g.free
		if len(g.views) == 0 {
			g.giveBack() // all of it is a copy
		}
		if err != nil {
			l.later(g.content)
			f.finish(nil, err)
			return
		}
		f.finish(g.content, nil)
	}()
}

// gaze is a view of memory of another loop.
type gaze struct {
	loop    *Loop
	remote  *remote
	frame   *frame
	content *content
	views   []*peer.View // that this process sees
	copies  func()       // frees the memory of copies; may be nil
	given   bool         // back. Under Loop.mu
}

// look maps the windows, and copies those that this process does not see.
func (g *gaze) look() error {
	l, f := g.loop, g.frame
	views := make([]*peer.View, len(f.forms))
	handles := make([]peer.Handle, len(f.forms))
	var err error
	for i := range f.forms {
		if views[i], handles[i], err = l.lib.View(f.tokens[i]); err != nil {
			handles = handles[:i]
			break
		}
	}
	if failed := awaitAll(handles); err == nil {
		err = failed
	}
	var apart []form
	for i, v := range views[:len(handles)] {
		s, ok := v.Strided()
		if !ok {
			v.Close()
			apart = append(apart, f.forms[i])
			g.content.tensors = append(g.content.tensors, tensor.Strided{})
			continue
		}
		g.views = append(g.views, v)
		g.content.tensors = append(g.content.tensors, s)
		if err == nil && (s.DType() != f.forms[i].dtype || s.Shape() != f.forms[i].shape) {
			err = errs.Invalid("get: tensor %d: its loop describes it otherwise (%s, and %s%s)", i, s, f.forms[i].dtype, f.forms[i].shape)
		}
	}
	if err != nil || len(apart) == 0 {
		return err
	}
	return g.copyApart(apart)
}

// copyApart copies the tensors that this process does not see.
func (g *gaze) copyApart(forms []form) error {
	l := g.loop
	room := newContent(nil, false)
	g.copies = room.drop
	total := int64(0)
	for i := range forms {
		if n := forms[i].bytes(); n > l.opt.ValueBytes-total {
			return errs.Invalid("get: view: it is too large (want at most %d bytes): raise Options.ValueBytes", l.opt.ValueBytes)
		}
		total += forms[i].bytes()
	}
	if err := l.opt.empty(room, forms); err != nil {
		return err
	}
	var handles []peer.Handle
	var err error
	next := 0
	for i := range g.content.tensors {
		t := &g.content.tensors[i]
		if t.DType().Valid() {
			continue
		}
		*t = room.tensors[next]
		next++
		if t.Len() == 0 {
			continue
		}
		var h peer.Handle
		if h, err = l.peer.Get(*t, g.frame.tokens[i], nil); err != nil {
			break
		}
		handles = append(handles, h)
	}
	if failed := awaitAll(handles); err == nil {
		err = failed
	}
	return err
}

// free ends the view, after its last holder.
func (g *gaze) free() {
	for _, v := range g.views {
		v.Close()
	}
	if g.copies != nil {
		g.copies()
	}
	g.loop.mu.Lock()
	defer g.loop.unlock()
	g.giveBack()
}

// giveBack tells the other loop. Under Loop.mu.
func (g *gaze) giveBack() {
	if !g.given {
		g.given = true
		g.remote.send(&outgoing{frame: frame{op: opFreed, number: g.frame.tag}})
	}
}
