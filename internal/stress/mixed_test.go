package stress

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// mixedMost is the most payload of all mixed exchanges of a test.
const mixedMost = 10 << 30

// mixedAll is how many mixed exchanges a long test has.
const mixedAll = 100_000

var mixedTime = flag.Duration("mixed.time", 0, "how long exchanges of mixed sizes go over each van, unless it has had as many as in the long form; 0: as many as the form has")

// mixedCounts is how many mixed exchanges a test has at least, and at most.
func mixedCounts() (least, most int) {
	switch {
	case *mixedTime > 0:
		return 5000, mixedAll
	case *long:
		return mixedAll, mixedAll
	}
	return 2000 / slowness, 2000 / slowness
}

// Each exchange has other sizes and begins at other addresses than the one before. The worker pushes to registered
// buffers and to pooled memory. Answers come from the memory of either side. Every byte is compared.
func TestMixedSizesStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		largest := load{Placed: cutMost, Pooled: cutMost, Pull: cutMost}
		cl := raise(t, van, shape{workers: 1, servers: 1, work: work{Loads: []load{largest}, Mixed: true}})
		began := time.Now()
		w := cl.workers[0]
		least, most := mixedCounts()
		done, bytes := 0, int64(0)
		for done < most && (done == 0 || time.Since(began) < *mixedTime) {
			w.tell(command{Do: doRun, Count: least})
			bytes = w.awaitFor(soakBound, evRan, nil).Bytes
			done += least
		}
		t.Logf("%d exchanges, %d MB, in %v", done, bytes/1e6, time.Since(began).Round(time.Millisecond))
		require.LessOrEqual(t, bytes, int64(mixedMost))
		w.tell(command{Do: doStop})
		for _, p := range cl.all() {
			require.Empty(t, p.end(), p.name)
		}
		require.Empty(t, files(t, cl.dir))
	})
}

// Powers of two of the sizes of tensors. One tensor in cutRare is large.
const (
	cutUsual = 16 // sizes below it, as many of each power
	cutLarge = 22 // as many of each power from there on
	cutRare  = 256
	cutMost  = 1 << cutLarge
	cutShift = 64 // tensors begin at one of so many addresses
)

// cutter gives the tensors of an exchange other sizes, again and again.
type cutter struct {
	rand       *rand.Rand
	push, pull []tensor.Tensor // whole
}

// newCutter is for an exchange that has its largest sizes.
func newCutter(x *ps.Exchange, seed uint64) *cutter {
	c := &cutter{rand: rand.New(rand.NewPCG(seed, 17))}
	c.push, c.pull = append(c.push, x.Push...), append(c.pull, x.Pull...)
	return c
}

// next cuts all tensors.
func (c *cutter) next(x *ps.Exchange) (err error) {
	for i, t := range c.push {
		if x.Push[i], err = c.part(t); err != nil {
			return err
		}
	}
	for i, t := range c.pull {
		if x.Pull[i], err = c.part(t); err != nil {
			return err
		}
	}
	return nil
}

// part of a tensor has a size at, just beside, or somewhere above a power of two.
func (c *cutter) part(t tensor.Tensor) (tensor.Tensor, error) {
	power := int64(1) << c.rand.IntN(cutUsual)
	if c.rand.IntN(cutRare) == 0 {
		power = 1 << (cutUsual + c.rand.IntN(cutLarge-cutUsual))
	}
	n := power + c.rand.Int64N(power)
	if c.rand.IntN(2) == 0 {
		n = power + c.rand.Int64N(3) - 1
	}
	at := c.rand.Int64N(min(cutShift, int64(t.Len())-n+1))
	return t.Slice(at, at+n)
}
