package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// letter is what agents tell each other about a leg of a batch.
type letter struct {
	kind        letterKind
	batch, pair string
	roster      uint64
	token       uint64    // of the registration, once its leader has given one
	member      int       // index in roster.all
	attempt     uint64    // of the member
	rounds      [2]uint64 // by direction: that all ranks of an agent have asked for, or of letterFailed, that it has done
	direction   int
	failure     failure
	attempts    []uint64 // of letterFits: of all members
	forms       []form
}

type letterKind uint8

const (
	letterRegister letterKind = 1 + iota // to the leader: what a rank registers
	letterWithdraw                       // to the leader: a rank gives up
	letterFits                           // of the leader: everything fits, and this is the token
	letterReady                          // to the leader: the plans of an agent are made
	letterGo                             // of the leader: all agents are ready
	letterFailed                         // to all agents of the roster
	letterAsked                          // to the receiving agents of a mixed roster: a round may come
	letterRefused                        // to the leader: an agent does not let its rank register
	letterEcho                           // to any agent: answer this, after all that came before
	letterEchoed                         // the answer
	letterEnd
)

// form describes a tensor: its types at both sides, and the shape of a part or of the whole.
type form struct {
	types [2]tensor.DType
	shape tensor.Shape
}

// maxLetter bounds a letter. It is enough for [MaxTensors] tensors.
const maxLetter = 16 << 20

func (l *letter) encode() []byte {
	b := msgp.AppendArrayHeader(nil, 15)
	b = msgp.AppendUint64(b, uint64(l.kind))
	b = msgp.AppendString(b, l.batch)
	b = msgp.AppendString(b, l.pair)
	for _, n := range []uint64{l.roster, l.token, uint64(l.member), l.attempt, l.rounds[0], l.rounds[1], uint64(l.direction)} {
		b = msgp.AppendUint64(b, n)
	}
	b = l.failure.append(b)
	b = msgp.AppendArrayHeader(b, uint32(len(l.attempts)))
	for _, n := range l.attempts {
		b = msgp.AppendUint64(b, n)
	}
	b = msgp.AppendArrayHeader(b, uint32(len(l.forms)))
	for i := range l.forms {
		f := &l.forms[i]
		b = msgp.AppendArrayHeader(b, uint32(2+f.shape.Rank()))
		b = msgp.AppendUint64(b, uint64(f.types[0]))
		b = msgp.AppendUint64(b, uint64(f.types[1]))
		for _, n := range f.shape.Dims() {
			b = msgp.AppendUint64(b, uint64(n))
		}
	}
	return b
}

// readLetter reads a letter. It trusts nothing.
func readLetter(b []byte) (l letter, err error) {
	f := payloadFields("letter", b)
	f.tuple(15)
	l.kind = letterKind(f.nextNumber(uint64(letterEnd) - 1))
	l.batch, l.pair = f.nextText(), f.nextText()
	l.roster, l.token = f.nextNumber(1<<64-1), f.nextNumber(1<<64-1)
	l.member, l.attempt = int(f.nextNumber(2*maxWorld)), f.nextNumber(1<<64-1)
	l.rounds = [2]uint64{f.nextNumber(1<<64 - 1), f.nextNumber(1<<64 - 1)}
	l.direction = int(f.nextNumber(1))
	l.failure = f.failure()
	for range f.nextArray(2 * maxWorld) {
		if l.attempts = append(l.attempts, f.nextNumber(1<<64-1)); f.err != nil {
			return l, f.err
		}
	}
	for range f.nextArray(MaxTensors) {
		if l.forms = append(l.forms, f.form()); f.err != nil {
			return l, f.err
		}
	}
	f.endValue()
	if f.err == nil && (l.kind == 0 || len(l.batch) > MaxBatchID || len(l.pair) > MaxName) {
		f.fail("unknown kind or names that are too long (got %d, %d and %d bytes)", l.kind, len(l.batch), len(l.pair))
	}
	return l, f.err
}

func (f *fields) form() (x form) {
	n := int(f.nextArray(2 + tensor.MaxRank))
	x.types = [2]tensor.DType{tensor.DType(f.nextNumber(255)), tensor.DType(f.nextNumber(255))}
	if f.err == nil && (n < 2 || !x.types[0].Valid() || !x.types[1].Valid()) {
		f.fail("unknown types %d and %d of a tensor", x.types[0], x.types[1])
	}
	if f.err != nil {
		return form{}
	}
	dims := make([]int64, n-2)
	for i := range dims {
		dims[i] = int64(f.nextNumber(1 << 62))
	}
	shape, err := tensor.MakeShape(dims...)
	if err != nil {
		f.fail("%v", err)
	}
	x.shape = shape
	return x
}

// failure is an error as others are announced of it.
type failure struct {
	kind string // of kinds; "" for no error
	text string
	id   uint64 // of a failure of a batch, the same wherever it is heard of; 0: it has none
}

// kinds are the errors that keep their kind.
var kinds = []struct {
	name string
	err  error
}{
	{"invalid", stepvan.ErrInvalid}, {"lost", stepvan.ErrPeerLost}, {"full", stepvan.ErrWouldBlock}, {"busy", stepvan.ErrBusy},
	{"stale", stepvan.ErrStale}, {"memory", stepvan.ErrNoMemory}, {"closed", stepvan.ErrClosed}, {"late", context.DeadlineExceeded}, {"cancelled", context.Canceled}, {"remote", stepvan.ErrRemote},
}

const maxReason = 2048

func failureOf(err error) failure {
	if err == nil {
		return failure{}
	}
	reason := text.Line(err.Error(), maxReason)
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return failure{k.name, reason, failureID(err)}
		}
	}
	return failure{"remote", reason, failureID(err)}
}

// err is the error that the other side had.
func (f failure) err() error {
	if f.kind == "" {
		return nil
	}
	for _, k := range kinds {
		if k.name == f.kind {
			return &remoteError{f.text, k.err, f.id}
		}
	}
	return &remoteError{f.text, stepvan.ErrRemote, f.id}
}

func (f failure) append(b []byte) []byte {
	return msgp.AppendUint64(msgp.AppendString(msgp.AppendString(b, f.kind), f.text), f.id)
}

func (f *fields) failure() (x failure) {
	x.kind, x.text, x.id = f.nextText(), text.Line(f.nextText(), maxReason), f.nextNumber(1<<64-1)
	return x
}

// remoteError is an error that another process had.
type remoteError struct {
	text string
	kind error
	id   uint64
}

// markedError is an error with a number.
type markedError struct {
	error
	id uint64
}

// Unwrap returns the error.
func (e *markedError) Unwrap() error { return e.error }

// failureID is the number of a failure, or 0.
func failureID(err error) uint64 {
	var mine *markedError
	var theirs *remoteError
	switch {
	case errors.As(err, &mine):
		return mine.id
	case errors.As(err, &theirs):
		return theirs.id
	}
	return 0
}

// mark gives a failure a number that no other one has.
func mark(err error) error {
	if failureID(err) != 0 {
		return err
	}
	return &markedError{err, rand.Uint64()}
}

// Error returns the text of the other process.
func (e *remoteError) Error() string { return e.text }

// Timeout reports whether a wait took too long, as net.Error does.
func (e *remoteError) Timeout() bool { return errors.Is(e.kind, context.DeadlineExceeded) }

// Unwrap returns the kind of the error.
func (e *remoteError) Unwrap() error { return e.kind }

// outgoing are the letters to an agent that have not been sent. Agent.mu guards it.
type outgoing struct {
	queue  [][]byte
	active bool // a goroutine sends
	silent bool // the agent has not answered letterEcho
}

// Parts of a letter that is longer than a mail.
const (
	letterMore = 1
	letterLast = 0
	partBytes  = peer.MaxMail - 1
)

// send sends a letter to an agent, which may be this one. It does not block. Under mu.
func (a *Agent) send(to stepvan.Rank, l *letter) {
	o := a.outgoing[to]
	if o == nil {
		o = &outgoing{}
		a.outgoing[to] = o
	}
	o.queue = append(o.queue, l.encode())
	if !o.active && a.ctx.Err() == nil {
		o.active = true
		a.spawn(func() { a.deliver(to, o) })
	}
}

// deliver sends the letters to an agent, until none is left.
func (a *Agent) deliver(to stepvan.Rank, o *outgoing) {
	for {
		a.mu.Lock()
		if len(o.queue) == 0 {
			o.active = false
			a.wake()
			a.mu.Unlock()
			return
		}
		b := o.queue[0]
		o.queue = o.queue[1:]
		a.mu.Unlock()
		if to == a.self {
			a.read(to, b)
			continue
		}
		for len(b) > 0 {
			n, more := min(len(b), partBytes), byte(letterMore)
			if n == len(b) {
				more = letterLast
			}
			if !a.mail(to, append([]byte{more}, b[:n]...)) {
				break
			}
			b = b[n:]
		}
	}
}

// mailPause is how long an agent waits while another one has too much mail to receive.
const mailPause = time.Millisecond

// mail sends a part of a letter. It returns false if the agent is lost: the board says so, too.
func (a *Agent) mail(to stepvan.Rank, body []byte) bool {
	for {
		err := a.p.Mail(to, topic, body)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return err == nil
		}
		select {
		case <-time.After(mailPause):
		case <-a.ctx.Done():
			return false
		}
	}
}

// receive takes a part of a letter. The driver calls it.
func (a *Agent) receive(from stepvan.Rank, body []byte) {
	if len(body) == 0 {
		return
	}
	more, part := body[0], body[1:]
	a.mu.Lock()
	whole := append(a.partial[from], part...)
	if delete(a.partial, from); more == letterMore && len(whole) <= maxLetter {
		a.partial[from] = whole
	}
	a.mu.Unlock()
	if more == letterLast {
		a.read(from, whole)
	}
}

// read handles a letter. An agent that sends what cannot be read hears nothing of it: it waits in vain.
func (a *Agent) read(from stepvan.Rank, b []byte) {
	l, err := readLetter(b)
	if err != nil {
		a.opt.Log.Error().Err(err).Int("peer", int(from)).Msg("an agent sends a letter that cannot be read")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch l.kind {
	case letterRegister, letterWithdraw, letterReady, letterRefused:
		a.lead(from, &l)
	case letterEcho:
		a.send(from, &letter{kind: letterEchoed})
	case letterEchoed:
		if o := a.outgoing[from]; o != nil {
			o.silent = false
		}
		a.wake()
	default:
		a.follow(from, &l)
	}
}

// awaitReaders waits a while until the agents of all pairs have read what an agent has sent.
func awaitReaders(ctx context.Context, a *Agent) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rosters {
		for _, to := range r.agents() {
			if to != a.self && (a.outgoing[to] == nil || !a.outgoing[to].silent) {
				a.send(to, &letter{kind: letterEcho})
				a.outgoing[to].silent = true
			}
		}
	}
	for ctx.Err() == nil {
		silent := false
		for rank, o := range a.outgoing {
			silent = silent || o.silent && a.living[rank]
		}
		if !silent {
			return
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
}

// flush waits until the letters of this agent have been sent.
func (a *Agent) flush(ctx context.Context) {
	for {
		a.mu.Lock()
		active, changed := false, a.changed
		for _, o := range a.outgoing {
			active = active || o.active
		}
		a.mu.Unlock()
		if !active {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
