package particle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
)

// remote is the loop of another peer. Loop.mu guards it.
type remote struct {
	loop  *Loop
	rank  stepvan.Rank
	name  string // "peer 3"
	lost  error  // it is over
	known bool   // its hello has come
	hello hello

	out     fifo[*outgoing]
	retries bool   // flush is to be called again soon
	tags    uint64 // of the transfers to it
	calls   lane   // that come from it
	answers lane
	held    int64             // bytes of the frames of its calls that have no result yet
	views   map[uint64]*share // that it has, by number
	shown   uint64            // the last of these numbers
	seals   seals
}

// nameOf names the loop in errors; "" for this one.
func (r *remote) nameOf() string {
	if r == nil {
		return ""
	}
	return r.name
}

// hello is what a loop tells the others first.
type hello struct {
	devices int
	pickled bool // it allows pickled values
	nonce   [16]byte
}

const helloBytes = 4 + 4 + 1 + 16

func (h *hello) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, frameVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.devices))
	pickled := byte(0)
	if h.pickled {
		pickled = 1
	}
	return append(append(b, pickled), h.nonce[:]...)
}

func readHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes || binary.LittleEndian.Uint32(b) != frameVersion {
		return h, errs.Protocol("hello", 0, "it has another version of particles: use the same version of stepvan at all peers")
	}
	h.devices, h.pickled = int(binary.LittleEndian.Uint32(b[4:])), b[8] == 1
	copy(h.nonce[:], b[9:])
	return h, nil
}

// outgoing is a frame on its way to another loop.
type outgoing struct {
	frame   frame
	content *content // that travels with it; nil: none
	future  *Future  // of a call
	parts   int      // transfers that have begun
	sends   []peer.Handle
}

const (
	// maxHeld bounds remote.held. A loop with the default of Options.Outstanding never reaches it.
	maxHeld = 4 << 30
	// callBytes is what a call counts beside what its frame carries.
	callBytes = 1 << 10
)

// retryTime is how soon a loop tries again what found no room.
const retryTime = time.Millisecond

// send sends a frame, behind those that wait. It takes over the content. Under Loop.mu.
func (r *remote) send(x *outgoing) {
	if r.lost != nil {
		r.drop(x, r.lost)
		return
	}
	if p := x.content; p != nil && x.frame.flags&flagView == 0 {
		if err := x.frame.load(p); err != nil {
			r.drop(x, err)
			return
		}
	}
	x.frame.life = r.loop.life
	r.out.push(x)
	r.flush()
}

// load puts the value into the frame, or says that it travels apart.
func (f *frame) load(p *content) (err error) {
	for i := range p.tensors {
		f.forms = append(f.forms, formOf(&p.tensors[i]))
	}
	if p.pickled {
		f.flags |= flagPickled
	}
	n := p.tensorBytes()
	if n+int64(len(p.data)) > maxInline {
		f.flags |= flagApart
		f.bytes = int64(len(p.data))
		return nil
	}
	f.data = p.data
	for i := 0; err == nil && i < len(p.tensors); i++ {
		f.packed, err = appendElements(f.packed, &p.tensors[i])
	}
	return err
}

// drop gives up a frame.
func (r *remote) drop(x *outgoing, why error) {
	r.free(x)
	if x.future != nil {
		x.future.finish(nil, why)
	}
}

// flush sends what waits, as far as there is room.
func (r *remote) flush() {
	for r.out.len() > 0 && r.lost == nil {
		x := r.out.first()
		if !r.known && x.frame.op != opHello {
			return // what the other loop allows is not known
		}
		err := r.trySend(x)
		if errors.Is(err, stepvan.ErrWouldBlock) {
			r.retry()
			return
		}
		r.out.pop()
		switch {
		case err == nil:
			r.sent(x)
		case x.future == nil && x.frame.op == opReply:
			r.free(x)
			r.send(&outgoing{frame: frame{op: opReply, number: x.frame.number}.with(failureOf(err))})
		default:
			r.drop(x, err)
		}
	}
}

// free gives up the content of a frame that does not go. Transfers that have begun use its memory until they are over.
func (r *remote) free(x *outgoing) {
	p := x.content
	x.content = nil
	if len(x.sends) == 0 {
		r.loop.later(p)
		return
	}
	l := r.loop
	var body []byte
	if r.lost != nil { // a loop that is over has the transfers of a frame fail, and nobody else would end them
		if body = x.frame.append(nil); x.frame.flags&flagSealed != 0 {
			body = r.seals.seal(body, p)
		}
	}
	l.tasks.running++
	go func() {
		defer l.opt.Recover()
		if body != nil {
			r.mail(body)
		}
		_ = awaitAll(x.sends)
		p.drop()
		l.mu.Lock()
		defer l.unlock()
		l.tasks.end(l)
	}()
}

// with is a reply with an error.
func (f frame) with(e *failure) frame {
	f.code, f.data = e.code, []byte(cut(e.text))
	return f
}

// retry has flush called again.
func (r *remote) retry() {
	if r.retries {
		return
	}
	r.retries = true
	time.AfterFunc(retryTime, func() {
		defer r.loop.opt.Recover()
		r.loop.mu.Lock()
		defer r.loop.unlock()
		r.retries = false
		r.flush()
	})
}

// trySend sends a frame. The transfers begin before it, so that a frame never promises what does not come.
func (r *remote) trySend(x *outgoing) error {
	f := &x.frame
	if err := r.allow(f); err != nil {
		return err
	}
	body := f.append(nil)
	if n := len(body) + numberBytes + sealBytes; n > peer.MaxMail {
		return errs.Invalid("send: tensors: %d of them take too many bytes to describe (got %d, want at most %d): join some", len(f.forms), n, peer.MaxMail)
	}
	if f.flags&flagApart != 0 {
		if err := r.begin(x); err != nil {
			return err
		}
		body = f.append(body[:0]) // with the tag of the transfers
	}
	if f.flags&flagSealed != 0 {
		body = r.seals.seal(body, x.content)
	}
	return r.loop.peer.Mail(r.rank, topic, body)
}

// begin begins the transfers of a value, those that have not begun.
func (r *remote) begin(x *outgoing) error {
	parts := x.content.parts()
	if x.frame.tag == 0 {
		x.frame.tag = tagSpace | r.tags
		r.tags = (r.tags + MaxTensors + 1) & (tagSpace>>1 - 1)
	}
	for ; x.parts < len(parts); x.parts++ {
		if parts[x.parts].Len() == 0 {
			continue
		}
		h, err := r.loop.peer.Send(parts[x.parts], r.rank, peer.Tag(x.frame.tag)+peer.Tag(x.parts))
		if err != nil {
			return err
		}
		x.sends = append(x.sends, h)
	}
	return nil
}

// sent notes that a frame has gone.
func (r *remote) sent(x *outgoing) {
	p := x.content
	x.content = nil
	if len(x.sends) == 0 {
		r.loop.later(p)
		return
	}
	l := r.loop
	l.tasks.running++
	go func() { // the memory is borrowed until the transfers are over
		defer l.opt.Recover()
		err := awaitAll(x.sends)
		p.drop()
		l.mu.Lock()
		defer l.unlock()
		l.tasks.end(l)
		if err != nil && x.future != nil {
			x.future.finish(nil, fmt.Errorf("send: particle %d: %s: %w", x.future.to, x.future.what(), err))
		}
	}()
}

// mail sends a frame. It waits for room, and gives up when the peer or the node is over.
func (r *remote) mail(body []byte) {
	for errors.Is(r.loop.peer.Mail(r.rank, topic, body), stepvan.ErrWouldBlock) {
		time.Sleep(retryTime)
	}
}

// awaitAll waits for transfers, and returns the first error.
func awaitAll(handles []peer.Handle) (err error) {
	for _, h := range handles {
		if one := h.WaitFor(-1); err == nil {
			err = one
		}
	}
	return err
}

// lose ends what needs a loop that is over. Under Loop.mu.
func (r *remote) lose(why error) {
	if r.lost != nil {
		return
	}
	l := r.loop
	r.lost = why
	for r.out.len() > 0 {
		r.drop(r.out.pop(), why)
	}
	for _, f := range r.futures() {
		f.finish(nil, why)
	}
	for _, d := range l.devices {
		d.drop(func(c *Call) bool { return c.remote == r })
	}
	r.calls.end()
	r.answers.end()
	for number := range r.views {
		r.freed(number)
	}
}
