package bench

import "github.com/stepvan/stepvan/ps"

// mark is what a server adds to each byte of its answer.
func (s *spec) mark(server ps.Rank) byte {
	if echoes(s.Workload) {
		return 0
	}
	return byte(server) + 1
}

// writeAnswer repeats the pushed bytes in dst, and adds mark to each. When dst is shorter than the
// push, pieces of its length are added up.
func writeAnswer(dst, pushed []byte, mark byte) {
	for i := range dst {
		dst[i] = mark
	}
	for at := 0; at < max(len(dst), len(pushed)); {
		to, from := dst[at%len(dst):], pushed[at%len(pushed):]
		n := min(len(to), len(from))
		for i, b := range from[:n] {
			to[i] += b
		}
		at += n
	}
}

// firstWrong compares an answer with that of writeAnswer. It returns the index of the first wrong
// byte, or -1.
func firstWrong(got, pushed []byte, mark byte) int {
	if len(got) < len(pushed) {
		return firstWrongInSum(got, pushed, mark)
	}
	for start := 0; start < len(got); start += len(pushed) {
		for i := range min(len(pushed), len(got)-start) {
			if got[start+i] != pushed[i]+mark {
				return start + i
			}
		}
	}
	return -1
}

func firstWrongInSum(got, pushed []byte, mark byte) int {
	want := make([]byte, len(got))
	writeAnswer(want, pushed, mark)
	for i := range want {
		if got[i] != want[i] {
			return i
		}
	}
	return -1
}
