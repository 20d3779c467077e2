package work

import "unsafe"

// WordBytes is the unit of what the sides write and read: a size of Fresh is a multiple of it.
const WordBytes = 8

// patternBytes is how much fill writes word by word. The rest is copies of it, which are as fast as
// the stores of a program that computes with vectors.
const patternBytes = 4 << 10

// words is a whole number of words as such.
func words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/WordBytes)
}

// fill writes a word to all of b.
func fill(b []byte, word uint64) {
	first := words(b[:min(len(b), patternBytes)])
	for i := range first {
		first[i] = word
	}
	for at := patternBytes; at < len(b); at += patternBytes {
		copy(b[at:], b[:patternBytes])
	}
}

// filled reads all of b, and reports whether its sum fits copies of the word.
func filled(b []byte, word uint64) bool {
	all := words(b)
	wanted := uint64(len(all)) * word
	var s0, s1, s2, s3 uint64 // a single sum would wait for each addition
	for ; len(all) >= 4; all = all[4:] {
		s0, s1, s2, s3 = s0+all[0], s1+all[1], s2+all[2], s3+all[3]
	}
	for _, w := range all {
		s0 += w
	}
	return s0+s1+s2+s3 == wanted
}
