package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/stepvan/stepvan/ps"
)

// profile has the profiles of a process, from its first command to its last: of processor time, and of all allocations.
// The zero value writes nothing.
type profile struct {
	cpu  *os.File
	name string // of the files, without their ends
}

// start writes to files in the folder, named by role and rank. "" means no profile.
func (p *profile) start(folder string, n *ps.Node) (err error) {
	if folder == "" {
		return nil
	}
	runtime.MemProfileRate = 1 // a round has so few that each one matters
	p.name = filepath.Join(folder, fmt.Sprintf("%s-%d", n.Role(), n.Rank()))
	if p.cpu, err = os.Create(p.name + ".pprof"); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.cpu)
}

// stop ends the profiles.
func (p *profile) stop() error {
	if p.cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	runtime.GC() // which completes the profile of allocations
	allocs, err := os.Create(p.name + ".allocs.pprof")
	if err != nil {
		return errors.Join(err, p.cpu.Close())
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close(), p.cpu.Close())
}
