package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// refitting is the program of a source or a destination of a resharding. One goroutine uses it.
type refitting struct {
	node    *ps.Node
	spec    *Options
	share   *refit.Share
	region  *tensor.Region // of the share; nil where its memory is private
	plan    *peer.Plan     // from the first check on
	version uint64
	ends    ends
	memory  int64 // bytes of the process: before the plan, or the most while it runs
}

func newRefitting(n *ps.Node, s *Options) (*refitting, error) {
	rank := int(n.Rank())
	destination := rank >= s.Workers
	if destination {
		rank -= s.Workers
	}
	share, err := s.Refit.Share(destination, rank)
	if err != nil {
		return nil, err
	}
	p := &refitting{node: n, spec: s, share: share, ends: newEnds()}
	if s.Refit.Memory.InFile(destination) {
		if p.region, err = n.Memory().AllocFile(int(max(share.Bytes, 1))); err != nil {
			return nil, err
		}
		share.Use(p.region.Bytes())
	} else {
		share.Use(make([]byte, max(share.Bytes, 1)))
	}
	share.Fill(0) // touches all of it
	debug.FreeOSMemory()
	p.memory, err = ownMemory()
	return p, err
}

// agree makes the plan with the other processes.
func (p *refitting) agree(ctx context.Context) (err error) {
	moves := make([]peer.Move, len(p.share.Moves))
	whole := tensor.ShapeOf(p.share.Bytes / int64(tensor.BFloat16.Size()))
	var model tensor.Tensor
	if p.region != nil {
		model, err = tensor.FromRegion(p.region, 0, tensor.BFloat16, whole)
	} else {
		model, err = tensor.FromBytes(tensor.BFloat16, whole, p.share.Memory())
	}
	if err != nil {
		return err
	}
	for i := range p.share.Moves {
		m := &p.share.Moves[i]
		view, err := model.AsStrided(tensor.ShapeOf(m.Extent...), m.Mine.Strides, m.Mine.At/int64(tensor.BFloat16.Size()))
		if err != nil {
			return err
		}
		moves[i] = peer.Move{ID: m.ID, Peer: m.Peer, View: view, Label: m.Label}
	}
	sends, recvs := moves, []peer.Move(nil)
	if p.share.Destination {
		sends, recvs = nil, moves
	}
	if p.plan, err = p.node.Peer().Plan(ctx, "refit", sends, recvs); err != nil {
		return err
	}
	return checkVan(p.node.Connections(), p.spec.Van)
}

// refitChecks is how many runs a check has while it looks at the memory.
const refitChecks = 5

// check runs a version of its own, and compares all elements that have come. Then it looks at the memory that some runs
// take.
func (p *refitting) check(ctx context.Context, _ int) error {
	if p.plan == nil {
		if err := p.agree(ctx); err != nil {
			return err
		}
	}
	p.version++
	if p.share.Destination {
		clear(p.share.Memory())
	} else {
		p.share.Fill(p.version)
	}
	if err := p.once(ctx); err != nil {
		return err
	}
	if err := p.share.Check(p.version); err != nil {
		return fmt.Errorf("version %d: %w", p.version, err)
	}
	debug.FreeOSMemory()
	watching := watchMemory()
	var err error
	for range refitChecks {
		p.version++
		err = errors.Join(err, p.once(ctx))
	}
	memory, watchErr := watching()
	p.memory = memory
	return errors.Join(err, watchErr)
}

func (p *refitting) once(ctx context.Context) error {
	h, err := p.plan.Begin(p.version)
	if err != nil {
		return err
	}
	return h.Wait(ctx)
}

// run runs the plan count times. Budget: 0 allocations.
func (p *refitting) run(ctx context.Context, count int) error {
	for ; count > 0; count-- {
		p.version++
		if err := p.once(ctx); err != nil {
			return err
		}
		p.ends.add()
	}
	return nil
}

func (p *refitting) finish(context.Context) error { return nil }

// sent is what has gone to all other processes so far.
func (p *refitting) sent() (t ps.Traffic) {
	for _, c := range p.node.Connections() {
		t = sum(t, c.Sent)
	}
	return t
}

func sum(a, b ps.Traffic) ps.Traffic {
	return ps.Traffic{Messages: a.Messages + b.Messages, Own: a.Own + b.Own}
}

// moves tells the coordinator about the moves of a resharding. Other programs have nothing to tell.
func (m *nodeRunner) moves() *reply {
	p, ok := m.program.(*refitting)
	if !ok {
		return &reply{}
	}
	r := &reply{Memory: p.memory}
	if p.share.Destination {
		r.Moved = p.share.Moved
		seen := map[stepvan.Rank]bool{}
		for i := range p.share.Moves {
			seen[p.share.Moves[i].Peer] = true
		}
		r.Pairs = len(seen)
	}
	return r
}

// moves is what the coordinator knows of the moves of a resharding.
type moves struct {
	bytes  int64 // of all
	pairs  int
	before int64 // memory of all processes without the plan
	beyond int64

	sent   ps.Traffic // of all runs and processes
	allocs []uint64   // of all runs, by process
	runs   int
}

// ran adds what all processes say after a round. They come in the same order after each.
func (m *moves) ran(replies []reply, runs int) {
	if m.allocs == nil {
		m.allocs = make([]uint64, len(replies))
	}
	for i, r := range replies {
		m.sent = sum(m.sent, r.Sent)
		m.allocs[i] += r.Allocs
	}
	m.runs += runs
}

// add adds what processes say before they have a plan.
func (m *moves) add(replies []reply) {
	for _, r := range replies {
		m.bytes, m.pairs, m.before = m.bytes+r.Moved, m.pairs+r.Pairs, m.before+r.Memory
	}
}

// checked adds what all processes say after a check.
func (m *moves) checked(replies []reply) {
	sum := -m.before
	for _, r := range replies {
		sum += r.Memory
	}
	if m.beyond == 0 { // the files of the limit belong to what comes later
		m.beyond = sum
	}
}

func (m *moves) report(r *Report) {
	if r.Workload != Refit {
		return
	}
	d := &r.Details
	r.PushBytes, d.Beyond, d.Pairs = m.bytes/int64(r.Servers), m.beyond, m.pairs
	if m.runs > 0 {
		each := func(n uint64) float64 { return rounded(float64(n)/float64(m.runs)/float64(max(m.pairs, 1)), digits) }
		d.Messages, d.Acks = each(m.sent.Messages), each(m.sent.Own)
		d.AllocsMost = rounded(float64(slices.Max(m.allocs))/float64(m.runs), digits)
	}
}

var pss = regexp.MustCompile(`(?m)^Pss: +(\d+) kB`)

// ownMemory is the memory of this process. Pages that n processes share count as 1/n.
func ownMemory() (int64, error) {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	found := pss.FindSubmatch(text)
	if found == nil {
		return 0, errs.Invalid("the kernel does not report Pss: use one with /proc/self/smaps_rollup")
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}

// watchEvery is how often watchMemory looks. A look at a GiB takes some milliseconds.
const watchEvery = 20 * time.Millisecond

// watchMemory looks at the memory of this process until the function that it returns is called. That returns the most
// that was seen, which includes a last look.
func watchMemory() (stop func() (int64, error)) {
	var most int64
	var failed error
	look := func() {
		n, err := ownMemory()
		most, failed = max(most, n), errors.Join(failed, err)
	}
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(watchEvery):
				look()
			}
		}
	})
	return func() (int64, error) {
		close(end)
		ended.Wait()
		look()
		return most, failed
	}
}
