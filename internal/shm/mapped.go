package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

// Unmapped explains an EFAULT that ends a connection. It names the first of the segments of which this process has
// unmapped a page, and says what to do. nil when all are mapped. One system call per segment; for failures only.
func Unmapped(segments [][]byte) error {
	for _, s := range segments {
		if len(s) > 0 && !sys.Mapped(s) {
			return fmt.Errorf("this process has unmapped the memory of a tensor in use, %d bytes at %p: keep it until the exchange has ended (%w); it ends the connection: %w",
				len(s), unsafe.SliceData(s), unix.EFAULT, stepvan.ErrPeerLost)
		}
	}
	return nil
}
