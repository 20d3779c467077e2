package vantest

var clause02 = Clause{Number: 2, Name: "source_belongs_to_the_van_until_completion", cases: []testCase{
	{name: "large payload to a slow receiver", run: sourceOfLarge},
	{name: "small payload to a slow receiver", run: sourceOfSmall},
}}

// The sender is polled as often as it can be before the receiver is, and every
// source is overwritten the moment it completes: what completes too early arrives as junk.
func sourceOfLarge(p *probe) { sourceHeld(p, 12, parcel{size: mib + 1, segments: 5, meta: 100}) }

func sourceOfSmall(p *probe) { sourceHeld(p, 400, parcel{size: 99, segments: 2, meta: 20}) }

func sourceHeld(p *probe, n int, c parcel) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for range n {
		for range 20 {
			a.poll(true)
		}
		x.send(c)
	}
	x.arrive(y)
}
