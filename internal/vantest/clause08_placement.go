package vantest

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var clause08 = Clause{Number: 8, Name: "payload_goes_where_it_is_told", cases: append(append([]testCase{
	{name: "once per message, inside its memory", run: func(t *trial) {
		x, y := t.pair()
		for _, parts := range []int{1, 2, 7, 64} {
			x.in.parts, y.in.parts = parts, parts
			x.exchange(t.mix(100, 200*kib)...)
		}
		t.want(len(y.in.places) == 0 && len(x.in.places) == 0, "the Placer was asked for messages that were never delivered")
	}},
	{name: "refused payload is thrown away", run: func(t *trial) {
		x, y := t.pair()
		refused := 0
		y.in.refuse = func(sequence uint64) error {
			if sequence%3 == 0 {
				return errNoRoom
			}
			return nil
		}
		y.in.peek = func(a *arrival) {
			want := a.sequence%3 == 0 && a.Header.Payload > 0 && a.Payload == nil
			if got := errors.Is(a.Refused, errNoRoom); got != want {
				t.fail(8, "message %d: Refused is %v", a.sequence, a.Refused)
			}
			if want {
				refused++
			}
		}
		list := t.mix(200, 300*kib)
		for i := range list {
			if i%8 > 0 && list[i].size > 0 {
				list[i].size += int(y.caps.InMessage) // the Placer is asked for these
			}
		}
		x.deliver(list...)
		x.deliver(shape{size: 3 * mib}, shape{size: 3 * mib}, shape{size: 3 * mib}, shape{size: 1})
		t.want(refused > 50, "%d refusals", refused)
	}},
	{name: "a refusal of the protocol costs the connection", run: func(t *trial) {
		x, y := t.pair()
		z, _ := t.connect(x.n, y.n)
		y.in.refuse = func(sequence uint64) error {
			if sequence == 5 {
				return &stepvan.ProtocolError{Field: "test", Offset: 5, Reason: "refused by the Placer"}
			}
			return nil
		}
		mayFail(x, y)
		for sent := 0; sent < 8; {
			err := x.offer(shape{size: 50 * kib, meta: 5})
			switch {
			case err == nil:
				sent++
				continue
			case errors.Is(err, stepvan.ErrWouldBlock):
				t.until("room, or the loss", func() bool { return x.idle() || x.isLost() })
				continue
			}
			t.wantErr(err, "Send to a peer that hangs up", stepvan.ErrPeerLost)
			break
		}
		t.until("EventLost on both sides", func() bool { return x.isLost() && y.isLost() })
		t.want(isProtocol(y.count().reason), "EventLost says %q, not the Placer's stepvan.ProtocolError", y.count().reason)
		t.want(y.count().delivered == 4, "%d messages delivered, 4 came before the bad one", y.count().delivered)
		z.exchange(t.mix(20, 10*kib)...)
	}},
	{name: "targets need a one-sided van", run: func(t *trial) {
		x, _ := t.pair()
		if x.caps.OneSided {
			x.refuses(shape{size: 10, target: make([]van.Target, 2)}) // two targets for one segment
		} else {
			err := x.offer(shape{size: 10, target: make([]van.Target, 1)})
			t.wantErr(err, "Send with a target on a two-sided van", stepvan.ErrInvalid, stepvan.ErrNotSupported)
			m := &van.Message{Op: 1 << 50, Head: head(0, 1, 0, 10), Written: 10}
			t.wantErr(x.ep.Send(m), "Send of bytes that were written, on a two-sided van", stepvan.ErrInvalid)
		}
		x.deliver(shape{size: 10})
	}},
}, grantCases...), viewCases...)}

var errNoRoom = errors.New("vantest: no room for this one")
