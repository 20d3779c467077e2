package limit

import "time"

// mostCopied is how much a Copier copies in one go: larger copies are several of them.
const mostCopied = 64 << 20

// Copier copies between two buffers of its own. One goroutine at a time.
type Copier struct {
	bytes    int64
	from, to []byte
}

// NewCopier makes one for copies of so many bytes.
func NewCopier(bytes int64) *Copier {
	size := min(bytes, mostCopied)
	return &Copier{bytes: bytes, from: written(size), to: written(size)}
}

// Run copies at least once and until the time is over. It returns the mean time of a copy.
func (c *Copier) Run(d time.Duration) time.Duration {
	began, n := time.Now(), 0
	for batch := 1; ; batch *= 2 { // the clock costs more than a small copy
		for range batch {
			c.once()
		}
		n += batch
		if took := time.Since(began); took >= d {
			return took / time.Duration(n)
		}
	}
}

func (c *Copier) once() {
	for left := c.bytes; left > 0; {
		left -= int64(copy(c.to, c.from[:min(left, int64(len(c.from)))]))
	}
}
