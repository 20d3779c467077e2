//go:build !amd64 || race

package bulk

// assembly is false on other processors, and with the race detector, which sees copy and not assembly.
const assembly, fast = false, false

func move(_, _ *byte, _ uintptr) {}

func movePast(_, _ *byte, _ uintptr) {}

func toLine([]byte) int { return 0 }

func overlap(_, _ []byte) bool { return false }
