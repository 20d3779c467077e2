package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/stepvan/stepvan/ps"
)

// profile is the CPU profile of a process, from its first command to its last. The zero value
// writes nothing.
type profile struct{ file *os.File }

// start writes to a file in the folder, named by role and rank. "" means no profile.
func (p *profile) start(folder string, n *ps.Node) (err error) {
	if folder == "" {
		return nil
	}
	name := filepath.Join(folder, fmt.Sprintf("%s-%d.pprof", n.Role(), n.Rank()))
	if p.file, err = os.Create(name); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.file)
}

func (p *profile) stop() error {
	if p.file == nil {
		return nil
	}
	pprof.StopCPUProfile()
	return p.file.Close()
}
