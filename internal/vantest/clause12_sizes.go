package vantest

import (
	"errors"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

var clause12 = Clause{Number: 12, Name: "maximum_sizes_are_in_caps", cases: []testCase{
	{name: "meta", run: largestMeta},
	{name: "segments", run: mostSegments},
	{name: "payload", run: largestPayload},
}}

func largestMeta(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	most := a.van.Caps().MaxMeta
	x.run(y, shape{meta: most}, shape{meta: most - 1, size: 10}, shape{meta: most, size: 100000})
	x.refusesAll(shape{meta: most + 1}, shape{meta: 2*most + 1, size: 10})
	x.run(y, shape{meta: 1, size: 1})
}

func mostSegments(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	most := a.van.Caps().MaxSegments
	x.run(y, shape{size: 10 * most, segments: most}, shape{size: 1, segments: most})
	x.refusesAll(shape{size: 10 * most, segments: most + 1})
	x.run(y, shape{meta: 1, size: 1})
}

func (s *side) refusesAll(list ...shape) {
	for _, c := range list {
		err := s.offer(c)
		s.n.p.want(errors.Is(err, stepvan.ErrInvalid), "Send of %d bytes in %d segments with %d of meta returned %v, not stepvan.ErrInvalid", c.size, c.segments, c.meta, err)
	}
}

// largestPayload offers one byte more than the van takes. The payload is address space without
// memory behind it. A van that reads it before it checks does not survive.
func largestPayload(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	caps := a.van.Caps()
	size := caps.MaxPayload + 1
	parts := min(int64(caps.MaxSegments), 16)
	each := (size + parts - 1) / parts
	if each > 1<<40 {
		return // beyond any address space, so nobody can offer it
	}
	void, err := syscall.Mmap(-1, 0, int(each), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	p.must(err, "reserve address space")
	p.atEnd = append(p.atEnd, func() { _ = syscall.Munmap(void) })
	m := &van.Message{Op: 1 << 50}
	for left := size; left > 0; left -= each {
		m.Payload = append(m.Payload, void[:min(left, each)])
	}
	m.Head = encode(wire.Header{Kind: wire.KindData, Sequence: 1, Payload: uint64(size), Total: uint64(size)}, 0)
	err = x.ep.Send(m)
	p.want(errors.Is(err, stepvan.ErrInvalid), "Send of %d bytes returned %v, not stepvan.ErrInvalid; Caps.MaxPayload is %d", size, err, caps.MaxPayload)
	x.run(y, shape{size: 100})
}
