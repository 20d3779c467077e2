//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// Write does nothing on this processor.
func Write(unsafe.Pointer, uintptr) {}
