package vantest

import (
	"errors"

	"github.com/stepvan/stepvan"
)

var clause08 = Clause{Number: 8, Name: "payload_goes_where_it_is_told", cases: []testCase{
	{name: "once per message, inside its memory", run: placedOnce},
	{name: "refused payload is thrown away", run: placerRefuses},
	{name: "a refusal of the protocol costs the connection", run: placerCondemns},
	{name: "grants", run: grantsAreWritten, need: needOneSided},
	{name: "foreign, stale and short grants", run: grantsRefuse, need: needOneSided},
	{name: "withdrawal under fire", run: withdrawUnderFire, need: needOneSided},
	{name: "views", run: viewsAreTheMemory, need: needOneSided},
	{name: "foreign, stale and short views", run: viewsRefuse, need: needOneSided},
	{name: "views hold up withdrawals", run: viewsHoldWithdrawals, need: needOneSided},
	{name: "a peer that hears of a grant knows it", run: grantsAreKnown, need: needOneSided},
	{name: "views under fire", run: viewsUnderFire, need: needOneSided},
	{name: "targets need a one-sided van", run: targetsRefused},
}}

func placedOnce(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for _, parts := range []int{1, 2, 7, 64} {
		x.parts, y.parts = parts, parts
		duplex(x, y, p.mix(100, 200*kib))
	}
	p.want(len(y.places) == 0 && len(x.places) == 0, "the Placer was asked for messages that were never delivered")
}

var errNoRoom = errors.New("vantest: no room for this one")

func placerRefuses(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	refused := 0
	y.refuse = func(sequence uint64) error {
		if sequence%3 == 0 {
			return errNoRoom
		}
		return nil
	}
	y.peek = func(a *arrival) {
		want := a.sequence%3 == 0 && a.d.Header.Payload > 0 && a.d.Payload == nil
		if got := errors.Is(a.d.Refused, errNoRoom); got != want {
			p.fail(8, "message %d: Refused is %v", a.sequence, a.d.Refused)
		}
		if want {
			refused++
		}
	}
	list := p.mix(200, 300*kib)
	for i := range list {
		if i%8 > 0 && list[i].size > 0 {
			list[i].size += int(b.van.Caps().InMessage) // the Placer is asked for these
		}
	}
	x.run(y, list...)
	x.run(y, shape{size: 3 * mib}, shape{size: 3 * mib}, shape{size: 3 * mib}, shape{size: 1})
	p.want(refused > 50, "%d refusals", refused)
}

func placerCondemns(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	z, w := p.connect(a, b)
	y.refuse = func(sequence uint64) error {
		if sequence == 5 {
			return &stepvan.ProtocolError{Field: "test", Offset: 5, Reason: "refused by the Placer"}
		}
		return nil
	}
	x.endangered()
	y.endangered()
	for n := 0; n < 8; n++ {
		err := x.offer(shape{size: 50 * kib, meta: 5})
		for errors.Is(err, stepvan.ErrWouldBlock) {
			p.until("room, or the loss", func() bool { return x.idle() || x.count().lost })
			err = x.offer(shape{size: 50 * kib, meta: 5})
		}
		if err != nil {
			p.want(errors.Is(err, stepvan.ErrPeerLost), "Send to a peer that hangs up returned %v", err)
			break
		}
	}
	p.until("EventLost on both sides", func() bool { return x.count().lost && y.count().lost })
	p.want(isProtocol(y.count().reason), "EventLost says %q, not the Placer's stepvan.ProtocolError", y.count().reason)
	p.want(y.count().delivered == 4, "%d messages delivered, 4 came before the bad one", y.count().delivered)
	duplex(z, w, p.mix(20, 10*kib))
}
