package afd

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Keys are opaque to stepvan. This program puts the layer in bits 0 to 7, and the
// micro-batch's slot in bits 8 to 15. The worker's rank is in bits 16 to 47. Bit 48
// marks a pull. Bits 49 to 63 of a pull are the server that answers it.
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

// chunk names the registered memory of one push: the parts of its key.
type chunk struct {
	layer, slot int
	rank        stepvan.Rank
}

func (c chunk) pushKey() tensor.Key {
	return tensor.Key(c.layer) | tensor.Key(c.slot)<<slotShift | tensor.Key(c.rank)<<rankShift
}

func (c chunk) pullKey(server int) tensor.Key {
	return c.pushKey() | pullBit | tensor.Key(server)<<serverShift
}

// parseKey takes a push key apart. ok is false for the key of a pull.
func parseKey(k tensor.Key) (c chunk, ok bool) {
	return chunk{
		layer: int(k % maxLayers),
		slot:  int(k >> slotShift % maxSlots),
		rank:  stepvan.Rank(k >> rankShift % maxRanks),
	}, k < pullBit
}
