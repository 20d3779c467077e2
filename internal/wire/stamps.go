package wire

import "encoding/binary"

// StampsSize is the size of the timestamp extension (FlagTrace) at the end of a response's meta.
const StampsSize = 32

// AppendStamps appends the server's four timestamps in ns of its own clock:
// request received, request processed, response started, response posted.
func AppendStamps(b []byte, s [4]int64) []byte {
	for _, v := range s {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// CutStamps splits the timestamps from the end of a meta.
func CutStamps(meta []byte) (rest []byte, s [4]int64, err error) {
	if len(meta) < StampsSize {
		return nil, s, bad("stamps", 0, "cut off: %d of %d bytes", len(meta), StampsSize)
	}
	rest = meta[:len(meta)-StampsSize]
	for i := range s {
		s[i] = int64(binary.LittleEndian.Uint64(meta[len(rest)+8*i:]))
	}
	return rest, s, nil
}
