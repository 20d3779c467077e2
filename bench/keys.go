package bench

import (
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Keys: bits 0-15 are the slot, 16-47 the worker's rank, bit 48 marks a pull.
// Each exchange in flight has a slot of its own, below Options.Inflight; two more follow.
const (
	slotMask  = 1<<16 - 1
	rankShift = 16
	pullBit   = 1 << 48
)

func pushKey(rank ps.Rank, slot int) tensor.Key {
	return tensor.Key(rank)<<rankShift | tensor.Key(slot)
}

func pullKey(rank ps.Rank, slot int) tensor.Key { return pullBit | pushKey(rank, slot) }

func slotOf(k tensor.Key) int { return int(k & slotMask) }

// endSlot is the slot of the request with which a worker ends a round.
func (o *Options) endSlot() int { return o.Inflight }

// bulkSlot is the slot of the pull that is in flight besides the exchanges.
func (o *Options) bulkSlot() int { return o.Inflight + 1 }
