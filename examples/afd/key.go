package afd

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Keys are opaque to stepvan. In those of this program, bits 0-7 are the layer,
// 8-15 the micro-batch's slot, 16-47 the worker's rank, bit 48 marks a pull, and
// bits 49-63 of a pull are the server that answers it, so that every key of a
// request says all.
const (
	slotShift   = 8
	rankShift   = 16
	pullBit     = 1 << 48
	serverShift = 49

	maxLayers  = 1 << 8
	maxSlots   = 1 << 8
	maxRanks   = 1 << 32
	maxServers = 1 << 15
)

// place says what a tensor is: the parts of its key.
type place struct {
	layer, slot int
	rank        stepvan.Rank
}

func (p place) pushKey() tensor.Key {
	return tensor.Key(p.layer) | tensor.Key(p.slot)<<slotShift | tensor.Key(p.rank)<<rankShift
}

func (p place) pullKey(server int) tensor.Key {
	return p.pushKey() | pullBit | tensor.Key(server)<<serverShift
}

// placeOf takes a push key apart; ok is false for the key of a pull.
func placeOf(k tensor.Key) (p place, ok bool) {
	return place{
		layer: int(k % maxLayers),
		slot:  int(k >> slotShift % maxSlots),
		rank:  stepvan.Rank(k >> rankShift % maxRanks),
	}, k < pullBit
}
