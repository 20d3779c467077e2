package replay

// Tick is the number of a batch of the learner. It need not begin at 0, nor follow the one before.
type Tick uint64

// golden is 2^64 by the golden ratio.
const golden = 0x9E3779B97F4A7C15

// Pick is the place in a buffer with size rows of row i of a batch with a seed. It is output i of SplitMix64, of which
// the upper 32 bits choose among the rows. size is 1 to 2^32-1. Rows may be picked more than once.
//
// It is not what torch.randint picks. That generator has a state of 2.5 KB, so row i is not
// available without those before it.
func Pick(seed, i, size uint64) uint64 {
	x := seed + (i+1)*golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	return (x >> 32) * size >> 32
}
