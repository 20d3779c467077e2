package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/tensor"
)

// Move is one end of a move of a [Plan]: the elements of a view that go to a peer, or come from one.
type Move struct {
	ID   uint64 // the same at both ends
	Peer stepvan.Rank
	View tensor.Strided
	// Wire is the type that the elements have on their way, the same at both ends. It is the type of one end, and they
	// are converted once at the other one. 0: both ends have one type.
	Wire tensor.DType
	// Merge is of receives. Several of them may have the same view, all with the same merge, which is not Overwrite.
	// Their elements are merged in the order of their IDs, and in that of their peers where IDs are equal. The first
	// ones replace what the view had.
	Merge Merge
	Label string // for errors: the name of the parameter
}

// Plan moves the elements of many views between peers, as often as they like. It is agreed on once. A run costs two
// messages a pair of peers where the receiver sees the memory of the sender, and three where only the sender sees that
// of the receiver.
//
// All peers that the moves name take part in a run: each calls Begin. The memory of the moves is borrowed until
// Close has returned nil. Nobody writes to the views of the sends from Begin until its handle completes, and nobody
// uses those of the receives. After a run that has failed, nobody writes to them until Close has returned nil.
// A receiver that has not heard of the failure may still read, and takes what it reads for the version.
type Plan struct {
	p     *Peer
	name  string
	edges []*edge // by rank of the other end, sends first
	own   task    // moves within this process
	local cargo
	merge *merger          // nil without merges
	views []tensor.Strided // retained
	with  []stepvan.Rank   // the peers that have agreed on it with this one
	draft *draft           // until all have agreed. Under Peer.mu

	// Under Peer.mu.
	attempt uint64                  // in which it was agreed on; 0 before
	made    time.Time               // when it was agreed on
	record  *handles.Record[result] // of the run; nil between two runs
	run     uint64                  // its version; 0 while it takes what is offered
	last    uint64                  // the highest version that was begun
	version uint64
	sends   bool  // some move is a send to another peer
	pending int   // edges and local copies that the run waits for
	broken  error // why no other run can begin
	loud    int   // edges whose memory is in use although the plan is over
	busy    bool  // the local copies are being made
	closed  bool
	changed progress.Event
}

// Plan agrees on a plan with all peers that the moves name. Each of them calls it with the same name. A send and
// the receive of the other peer that names this one and has the same ID are one move. Both need the same type and
// number of elements, and their shapes a common division. With [Move.Wire], their types may differ. If something does
// not fit, the error is a [*MismatchError] at both ends, and nothing is left of the plan at any peer. Plan waits until
// all have agreed, one of them dies, or ctx ends.
//
// A peer that gives up fails the attempts of those that have read its proposal. All may try again at once under the
// same name. What belongs to an earlier attempt is never taken for a part of a later one.
func (p *Peer) Plan(ctx context.Context, name string, sends, recvs []Move) (*Plan, error) {
	return p.PlanWith(ctx, name, sends, recvs, PlanOptions{})
}

// checkPlanName refuses a name that no plan of a program may have.
func checkPlanName(name string) error {
	if name == "" || len(name) > maxName || strings.HasPrefix(name, groupKey) {
		return errs.Invalid("plan: name %s: got %d bytes, want 1 to %d, and another beginning than %s: give another",
			text.Line(name, 32), len(name), maxName, groupKey)
	}
	return nil
}

// negotiate makes the plan, or leaves nothing of it.
func negotiate(ctx context.Context, d *draft, sends, recvs []Move) (*Plan, error) {
	if err := d.prepare(sends, recvs); err != nil {
		return nil, err
	}
	pl, err := d.agree(ctx)
	if err != nil {
		d.withdraw(err)
		return nil, err
	}
	return pl, nil
}

// Begin starts a run with a version, which is not 0 and never lower than before. A peer that only receives may pass 0:
// it takes the version that is offered. All peers of a run have the same version. The handle completes when the
// elements of this peer's receives have come, and nobody reads those of its sends any more. Errors:
//
//   - [stepvan.ErrInvalid]: the version is lower than the last one, or 0 at a peer that sends;
//   - [stepvan.ErrBusy]: a run has not completed. Wait for its handle;
//   - [stepvan.ErrPeerLost], [stepvan.ErrRemote], [stepvan.ErrClosed]: the plan is over, and can only be closed.
//
// Budget: 0 allocations.
func (pl *Plan) Begin(version uint64) (Handle, error) {
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	if err := pl.check(version); err != nil {
		return Handle{}, err
	}
	pl.record = p.start("plan", nil)
	h := p.handle(pl.record)
	pl.run, pl.version, pl.pending = version, 0, 1
	pl.last = max(pl.last, version)
	for _, e := range pl.edges {
		e.pending = true
		pl.pending++
	}
	if !pl.local.empty() {
		pl.pending++
		pl.busy = true
		p.run(&pl.own, len(pl.local.chunks), pl.local.bytes)
	}
	if pl.merge != nil {
		pl.pending++
		pl.merge.begin()
	}
	for _, e := range pl.edges {
		switch {
		case pl.record == nil: // the start of another edge has failed the plan
		case e.passes(): // begins when its elements come
		case e.out:
			e.offer(version)
		case e.offered != 0:
			pl.take(e)
		}
	}
	pl.finished()
	return h, nil
}

// check refuses a run that cannot begin.
func (pl *Plan) check(version uint64) error {
	switch {
	case pl.closed:
		return fmt.Errorf("plan %s: begin: it was closed: %w", pl.name, stepvan.ErrClosed)
	case pl.broken != nil:
		return errs.Ended("plan "+pl.name, pl.broken)
	case pl.p.over != nil:
		return errs.Ended("plan "+pl.name, pl.p.over)
	case pl.record != nil:
		return fmt.Errorf("plan %s: begin: the last run has not completed: wait for its handle: %w", pl.name, stepvan.ErrBusy)
	case version == 0 && pl.sends:
		return errs.Invalid("plan %s: begin: version: a peer that sends gives one (got 0, want 1 or more): count the runs", pl.name)
	case version != 0 && version < pl.last:
		return errs.Invalid("plan %s: begin: version: it falls (got %d, want at least %d): give the version of the elements", pl.name, version, pl.last)
	}
	return nil
}

// offer tells the receiver of e that the elements of a version hold still.
func (e *edge) offer(version uint64) {
	e.tell(opOpen, version)
	switch {
	case e.empty(): // the receiver still says that it has taken the run: the next one may not overtake it
		e.state, e.missing = edgeRunning, stepNote
	case e.written.empty() && e.streamed.empty():
		e.begin() // the receiver does all
	}
}

// empty reports whether the edge of a plan has nothing to move.
func (e *edge) empty() bool {
	return e.viewed.empty() && e.written.empty() && e.streamed.empty() && e.merges == nil
}

// tell tells the other end of a run.
func (e *edge) tell(o op, version uint64) {
	m := e.remote.message(o, e.theirs)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(e.id))
	m.meta = binary.LittleEndian.AppendUint64(m.meta, version)
	e.remote.send(m)
}

// take begins to receive what the other end of e has offered.
func (pl *Plan) take(e *edge) {
	version := e.offered
	if pl.run == 0 && version >= pl.last {
		pl.run, pl.last = version, version
	}
	if version != pl.run {
		pl.fail(fmt.Errorf("%w: plan %s: %s runs version %d and this peer version %d: begin the same version at all peers",
			stepvan.ErrInvalid, pl.name, e.remote.Name, version, max(pl.run, pl.last)))
		return
	}
	e.offered = 0
	if !e.written.empty() || !e.streamed.empty() || e.copiesLate() {
		e.tell(opReady, version)
	}
	if e.empty() {
		e.remote.note(opDone, e.theirs)
	}
	e.begin()
	e.relay.passAll()
	if e.merges != nil {
		pl.merge.offered()
	}
}

// ran handles what the other end of an edge says of a run.
func (t *edgeTable) ran(r *remote, m *link.Inbound) error {
	e, err := t.find(r, m)
	d := decode(m.Meta)
	theirs, version := d.u64(), d.u64()
	if err == nil {
		err = d.end()
	}
	if err == nil && e == nil {
		r.refuse(theirs, errPlanOver)
	}
	if err != nil || e == nil || e.state >= edgeFailed {
		return err
	}
	pl, ok := e.owner.(*Plan)
	if !ok {
		return errs.Protocol("request", 56, "a run of %#x, which is not a plan", m.Header.Request)
	}
	if op(m.Header.Op) == opReady {
		if e.passes() {
			if !e.relay.wanted(version) {
				return errs.Protocol("op", 7, "a peer is ready for version %d of plan %s, which it was not offered", version, pl.name)
			}
			return nil
		}
		if !e.out || e.state != edgeIdle || !e.pending {
			return errs.Protocol("op", 7, "a peer is ready for a run of plan %s that has not begun", pl.name)
		}
		e.begin()
		return nil
	}
	if e.out || e.offered != 0 || version == 0 || e.state == edgeRunning {
		return errs.Protocol("op", 7, "a peer offers version %d of plan %s before the last one was taken", version, pl.name)
	}
	e.offered = version
	e.relay.announce(version)
	if e.pending {
		pl.take(e)
	}
	return nil
}

var errPlanOver = errors.New("the plan is over at this peer")

// copied ends the copies within this process. Movers call it.
func (pl *Plan) copied() {
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	pl.busy = false
	if pl.record != nil {
		pl.finished()
	}
	pl.checkQuiet()
}

// arrived implements edgeOwner.
func (pl *Plan) arrived(e *edge) {
	e.pending = false
	e.relay.arrived()
	pl.finished()
}

// finished notes that a part of the run is over. The last one completes it.
func (pl *Plan) finished() {
	if pl.pending--; pl.pending > 0 || pl.record == nil {
		return
	}
	pl.version = max(pl.run, pl.last)
	pl.p.results.Finish(pl.record, nil)
	pl.record = nil
	if pl.broken != nil { // a peer was lost that had done its part: the others learn it
		pl.fail(pl.broken)
	}
}

// failed implements edgeOwner. A peer that has done its part of the run does not fail it any more.
func (pl *Plan) failed(e *edge, err error) {
	if pl.record != nil && !e.pending {
		if pl.broken == nil {
			pl.broken = err
		}
		return
	}
	pl.fail(err)
}

// fail ends the plan.
func (pl *Plan) fail(err error) {
	if pl.broken == nil || pl.record != nil { // what fails a run is told, and not that a peer ended the plan before
		pl.broken = err
	}
	if pl.record != nil {
		pl.version = 0
		pl.own.stop.Store(true)
		if pl.merge != nil {
			pl.merge.task.stop.Store(true)
		}
		pl.p.results.Finish(pl.record, errs.Ended("plan "+pl.name, pl.broken))
		pl.record = nil
	}
	for _, e := range pl.edges {
		e.fail(err)
	}
}

// quiet implements edgeOwner.
func (pl *Plan) quiet(*edge) {
	pl.loud--
	pl.checkQuiet()
}

// checkQuiet wakes Close when nobody uses the memory of the plan any more.
func (pl *Plan) checkQuiet() {
	if pl.closed && pl.loud == 0 && !pl.copies() {
		pl.p.link.Engine().Set(&pl.changed)
	}
}

// copies reports whether the copies within this process are being made, or a merge.
func (pl *Plan) copies() bool { return pl.busy || pl.merge != nil && pl.merge.active }

// Offered reports whether all peers that this one receives from have begun a run, and its version. A peer that only
// receives polls it to begin then.
func (pl *Plan) Offered() (version uint64, ok bool) {
	pl.p.mu.Lock()
	defer pl.p.unlock()
	for _, e := range pl.edges {
		switch {
		case e.out:
		case e.offered == 0 || version != 0 && version != e.offered:
			return 0, false
		default:
			version = e.offered
		}
	}
	return version, version != 0
}

// Version is the version of the last run, if it is whole here. It is 0 while elements come, and after a failure.
func (pl *Plan) Version() uint64 {
	pl.p.mu.Lock()
	defer pl.p.unlock()
	return pl.version
}

// Err says why no other run can begin: a peer was lost, or has given up the plan. It is nil while a run can begin. A
// peer that only receives looks at it together with [Plan.Offered].
func (pl *Plan) Err() error {
	pl.p.mu.Lock()
	defer pl.p.unlock()
	if cause := cmp.Or(pl.broken, pl.p.over); cause != nil {
		return errs.Ended("plan "+pl.name, cause)
	}
	return nil
}

// noteRejection handles the rejection of the plan by another peer. A peer may have agreed, and then given up before it
// knew that all others agree as well.
func (pl *Plan) noteRejection(r *remote, l *letter) {
	switch {
	case pl.draft != nil:
		pl.draft.noteRejection(r, l)
	case l.to == pl.attempt && slices.Contains(pl.with, r.Rank):
		pl.fail(l.rejection(r, "plan "+pl.name))
	default:
		r.letters.dropAttempt(planKey+pl.name, l.from)
	}
}

// Name is the name of the plan.
func (pl *Plan) Name() string { return pl.name }

// PlanStats say what a run of a plan moves, and how. Elements count with the type that they have on their way.
type PlanStats struct {
	Moves    int
	Pairs    int   // of this peer and another, in one direction
	Merged   int   // receives whose elements are merged
	Viewed   int64 // bytes that the receiver copies out of the sender's memory
	Written  int64 // bytes that the sender copies to the receiver's memory
	Streamed int64 // bytes that travel in messages
	Local    int64 // bytes that stay in this process
	Received int64 // bytes that come from other peers
	Sent     int64 // bytes that go to other peers
	Passed   int64 // of those, bytes that this peer receives and passes on, see [PlanOptions]
}

// Stats returns what a run moves.
func (pl *Plan) Stats() (s PlanStats) {
	s.Moves, s.Pairs, s.Local = len(pl.views), len(pl.edges), pl.local.bytes
	if g := pl.merge; g != nil {
		s.Merged, s.Local = len(g.sources), s.Local+g.local
	}
	for _, e := range pl.edges {
		viewed, streamed := e.viewed.bytes, e.streamed.bytes
		if x := e.merges; x != nil {
			viewed, streamed = viewed+x.viewed, streamed+x.pulled
		}
		s.Viewed, s.Written, s.Streamed = s.Viewed+viewed, s.Written+e.written.bytes, s.Streamed+streamed
		n := viewed + e.written.bytes + streamed
		if e.out {
			s.Sent += n
		} else {
			s.Received += n
		}
		if e.passes() {
			s.Passed += n
		}
	}
	return s
}

// Close ends the plan at this peer, and at the others when they begin another run. A run that has not completed fails.
// Close waits until no peer uses the memory of the plan. A peer that is stopped may use it until it continues, or its
// process ends. So give ctx a deadline. When ctx ends before that, call Close again.
func (pl *Plan) Close(ctx context.Context) error {
	p := pl.p
	p.mu.Lock()
	if !pl.closed {
		pl.closed = true
		pl.fail(pl.whyClosed())
		delete(p.plans, pl.name)
	}
	pl.checkQuiet()
	p.unlock()
	if err := p.link.Engine().Wait(ctx, &pl.changed); err != nil {
		if ctx.Err() == nil {
			pl.abandon()
			return nil
		}
		return &stepvan.OpError{Op: "plan " + pl.name, Err: errs.Late("close: peers still use its memory: close it again", ctx.Err())}
	}
	p.mu.Lock()
	defer p.unlock()
	pl.release()
	return nil
}

// whyClosed is what the other peers are told. A program often closes a plan because it has learned of a death since it
// made the plan. The others may not know of that yet, and it need not be of a peer that this end of the plan names.
func (pl *Plan) whyClosed() error {
	cause := pl.p.over
	for _, r := range pl.p.remotes {
		if lost := cmp.Or(r.dead, r.broke); r.lost.After(pl.made) && !errors.Is(lost, link.ErrLeft) {
			cause = cmp.Or(cause, lost)
		}
	}
	if cause != nil {
		return fmt.Errorf("plan %s was closed: %w, after this: %s", pl.name, stepvan.ErrClosed, cause.Error())
	}
	return fmt.Errorf("plan %s was closed: %w", pl.name, stepvan.ErrClosed)
}

// abandon is the end of Close at a node that has stopped. Its peers take nothing that they copy after the end of their
// session, and its own copies end with the chunks that are being copied.
func (pl *Plan) abandon() {
	_ = pl.p.link.Abort() // waits until all sessions have ended, since somebody closes them already
	for !pl.tryAbandon() {
		runtime.Gosched()
	}
}

func (pl *Plan) tryAbandon() bool {
	pl.p.mu.Lock()
	defer pl.p.unlock()
	if pl.copies() || slices.ContainsFunc(pl.edges, func(e *edge) bool { return e.copying.isRunning() || e.flow.packer }) {
		return false
	}
	pl.release()
	return true
}

// release gives everything back.
func (pl *Plan) release() {
	for _, e := range pl.edges {
		e.close()
	}
	pl.edges = nil
	if pl.merge != nil {
		pl.merge.giveBack()
	}
	for i := range pl.views {
		pl.views[i].Release()
	}
	pl.views = nil
}
