package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// soakExchanges is the number of exchanges of all workers together.
func soakExchanges() int {
	if *long {
		return 100_000
	}
	return 1600
}

// 4 workers and 2 servers in one process, every byte checked.
func TestJointSoak(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 4, servers: 2, edit: patient})
			c.exercise(1000, soakExchanges()/4)
		})
	}
}

// 8 workers and 4 servers, a process each, every byte checked.
func TestProcessSoak(t *testing.T) {
	for _, van := range []vanKind{overTCP, overShm} {
		t.Run(van.name, func(t *testing.T) {
			f := raise(t, van, shape{workers: 8, servers: 4, edit: patient}, "serve", "work", soakExchanges()/8)
			for _, p := range f.workers {
				_, err := p.expect(soakLimit(t), "done")
				require.NoError(t, err)
			}
			for _, p := range append(f.servers, f.scheduler) {
				_, err := p.expect(limited(t), "done")
				require.NoError(t, err)
			}
		})
	}
}
