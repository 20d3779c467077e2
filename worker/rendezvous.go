package worker

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// owner returns the index of the server that owns k: the one whose hash with the
// key is highest (rendezvous hashing, Thaler and Ravishankar 1998). Every
// worker finds the same one from the ranks alone, and when a server joins or leaves only
// the keys that it owns move.
func owner(k tensor.Key, servers []*server) int {
	best, top := 0, uint64(0)
	for i, s := range servers {
		if h := weight(k, s.rank); i == 0 || h > top {
			best, top = i, h
		}
	}
	return best
}

func weight(k tensor.Key, rank stepvan.Rank) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(k))
	binary.LittleEndian.PutUint64(b[8:], uint64(rank))
	return xxhash.Sum64(b[:])
}
