package vantest

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan/internal/wire"
)

// reseal makes the checksum of a message right for its bytes. A van then finds an attack
// by what it says and not by its checksum.
func reseal(message []byte, meta int) {
	const at = 120
	sum := xxhash.Sum64(message[:at])
	if meta > 0 {
		sum = sum*0x9E3779B185EBCA87 ^ xxhash.Sum64(message[wire.HeaderSize:wire.HeaderSize+meta])
	}
	binary.LittleEndian.PutUint64(message[at:], sum)
}
