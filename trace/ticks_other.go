//go:build !amd64 && !arm64

package trace

func ticks() int64 { return 0 }

func steadyTicks() bool { return false }
