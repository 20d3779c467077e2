package vantest

import (
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var clause12 = Clause{Number: 12, Name: "maximum_sizes_are_in_caps", cases: []testCase{
	{name: "meta", run: func(t *trial) {
		x, _ := t.pair()
		most := x.caps.MaxMeta
		x.deliver(shape{meta: most}, shape{meta: most - 1, size: 10}, shape{meta: most, size: 100000})
		x.refuses(shape{meta: most + 1}, shape{meta: 2*most + 1, size: 10})
		x.deliver(shape{meta: 1, size: 1})
	}},
	{name: "segments", run: func(t *trial) {
		x, _ := t.pair()
		most := x.caps.MaxSegments
		x.deliver(shape{size: 10 * most, segments: most}, shape{size: 1, segments: most})
		x.refuses(shape{size: 10 * most, segments: most + 1})
		x.deliver(shape{meta: 1, size: 1})
	}},
	// One byte more than the van takes. The payload is address space without memory behind it. A van that reads it
	// before it checks does not survive.
	{name: "payload", run: func(t *trial) {
		x, _ := t.pair()
		size := x.caps.MaxPayload + 1
		parts := min(int64(x.caps.MaxSegments), 16)
		each := (size + parts - 1) / parts
		if each > 1<<40 {
			return // beyond any address space, so nobody can offer it
		}
		void, err := syscall.Mmap(-1, 0, int(each), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		t.must(err, "reserve address space")
		t.atEnd = append(t.atEnd, func() { _ = syscall.Munmap(void) })
		m := &van.Message{Op: 1 << 50, Head: head(0, 1, 0, uint64(size))}
		for left := size; left > 0; left -= each {
			m.Payload = append(m.Payload, void[:min(left, each)])
		}
		t.wantErr(x.ep.Send(m), "Send of a byte more than Caps.MaxPayload", stepvan.ErrInvalid)
		x.deliver(shape{size: 100})
	}},
}}
