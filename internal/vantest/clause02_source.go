package vantest

var clause02 = Clause{Number: 2, Name: "source_belongs_to_the_van_until_completion", cases: []testCase{
	{name: "large payload to a slow receiver", run: func(t *trial) { slowReceiver(t, 12, largeSource) }},
	{name: "small payload to a slow receiver", run: func(t *trial) { slowReceiver(t, 400, smallSource) }},
	{name: "the caller's after Send, with large memory to spare", run: func(t *trial) {
		slowReceiver(t, 12, largeSource.spared())
	}},
	{name: "the caller's after Send, with small memory to spare", run: func(t *trial) {
		slowReceiver(t, 400, smallSource.spared())
	}},
	{name: "the caller's after Send, behind a long head", run: func(t *trial) {
		x, _ := t.pair()
		long := shape{size: 700 * kib, segments: 3, meta: x.n.fits(100 * kib), spare: true}
		x.deliver(times(4, long, shape{size: 70 * kib, segments: 3, meta: 10})...)
	}},
	{name: "the caller's after Send, under way in both directions", run: func(t *trial) {
		x, _ := t.pair()
		shapes := t.mix(200, 2*mib)
		for i := range shapes {
			shapes[i].spare = i%3 != 0
		}
		x.exchange(shapes...)
	}},
}}

var (
	largeSource = shape{size: mib + 1, segments: 5, meta: 100}
	smallSource = shape{size: 99, segments: 2, meta: 20}
)

// spared is the shape with memory to spare: the suite overwrites its source the moment that Send returns.
func (c shape) spared() shape {
	c.spare = true
	return c
}

// slowReceiver polls the sender as often as it can before it polls the receiver. The suite overwrites every
// source the moment that its message completes. What completes too early arrives as junk.
func slowReceiver(t *trial, n int, c shape) {
	x, _ := t.pair()
	for range n {
		for range 20 {
			x.n.poll(true)
		}
		x.send(c)
	}
	x.drain()
}
