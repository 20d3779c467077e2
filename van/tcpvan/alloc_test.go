package tcpvan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// Budget: 0 allocations per message, sent and received, small and large.
func TestExchangeAllocates(t *testing.T) {
	for _, o := range []Options{{}, {Rails: 3}} {
		for _, size := range []int{0, 8, defaultSmallBytes, 2 << 20} {
			p := newVanPair(t, "127.0.0.1:0", o, size, size)
			defer p.stop()
			all := func() {
				p.a.say()
				for p.z.heard == 0 {
					p.z.poll(false)
					p.a.poll(false)
				}
				p.z.heard--
				for p.a.poll(true); ; p.a.poll(true) {
					if ep := p.a.ep.(*endpoint); ep.w.out.drained() {
						break
					}
				}
			}
			for range 100 { // every operation of the ring has had its turn
				all()
			}
			require.Zero(t, testing.AllocsPerRun(100, all), "%d bytes, %d rails", size, o.Rails)
		}
	}
}

// Budget: Send is one system call for a message of any number of segments up to
// IOV_MAX. The test sees that one call of sendmsg takes all of it.
func TestSendGathersAll(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	ep := out.(*endpoint)
	m := message(1, 40, cut(pattern(10_000, 1), 10)...)
	require.True(t, ep.w.out.push(m, 10_000, nil))
	size, behind := ep.w.out.gather(0, writeBound)
	require.Equal(t, len(m.Head)+10_000, size)
	require.Len(t, ep.w.out.iov, 1001)
	require.Equal(t, uint64(1), behind.op+boolToUint(behind.begun && behind.left == 0))
	ep.w.pump()
	expect(t, van.EventMessage, b, a).Delivery.Release()
}

func boolToUint(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
