package bench

import "github.com/stepvan/stepvan/ps"

// markOf is what a server adds to each byte of its answer.
func markOf(server ps.Rank, o *Options) byte {
	if o.traits().echoes {
		return 0
	}
	return byte(server) + 1
}

// answerByte is byte i of an answer of size bytes: the pushed bytes, repeated, with mark added to each.
// When the answer is shorter than the push, it is the sum of pieces of its length.
func answerByte(i, size int, pushed []byte, mark byte) byte {
	if i >= len(pushed) {
		i %= len(pushed)
	}
	sum := mark
	for at := i; at < len(pushed); at += size {
		sum += pushed[at]
	}
	return sum
}

// writeAnswer writes the answer to what was pushed.
func writeAnswer(dst, pushed []byte, mark byte) {
	for i := range dst {
		dst[i] = answerByte(i, len(dst), pushed, mark)
	}
}

// firstWrong compares an answer with that of writeAnswer. It returns the index of the first wrong
// byte, or -1.
func firstWrong(got, pushed []byte, mark byte) int {
	for i, b := range got {
		if b != answerByte(i, len(got), pushed, mark) {
			return i
		}
	}
	return -1
}
