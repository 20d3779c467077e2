package worker

import (
	"iter"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Over a one-sided van a server works in this process's memory where it can be shared. It writes answers where they
// belong and, where the van has views, reads pushes where they are. The worker grants whole memory files, each once per
// server, when it first names a tensor in one. The tensors of a request are lent until the answer to it, or until the
// server is lost and cannot reach them any more.

// Files knows the memory files of this process. [*tensor.Allocator] implements it.
type Files interface {
	files.Files
	registry.Arenas
}

// lender grants the memory files of this process to servers. Worker.mu guards what is not dropped.
type lender struct {
	memory      files.Memory
	dropped     *files.Watcher
	pool        *tensor.Allocator             // for copies of pushes
	largestSent int                           // Options.InPlaceBytes
	servers     map[*link.Session]*serverPeer // Worker.sessions
	ended       []endedMemory
}

// allRights is what a server may do with a file: it reads pushes there, and writes pulls.
const allRights = link.RightRead | link.RightWrite

// reach returns how v reaches b, or the zero Target. Under Worker.mu.
func (v *serverPeer) reach(b []byte) link.Target { return v.granted.Reach(b, allRights) }

// grants lists what each server was granted. Under Worker.mu.
func (l *lender) grants() iter.Seq[*files.Grants] {
	return func(yield func(*files.Grants) bool) {
		for _, v := range l.servers {
			if !yield(v.granted) {
				return
			}
		}
	}
}

// withdrawFile ends the grants of a file that was dropped. No tensor in it is lent. Under Worker.mu.
func (l *lender) withdrawFile(file uint64) { files.Withdraw(l.grants(), file, func() {}) }
