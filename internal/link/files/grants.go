package files

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Files knows the memory files of this process. [*tensor.Allocator] implements it.
type Files interface {
	// Locate finds the file that holds all of b, without allocating.
	Locate(b []byte) (tensor.Place, bool)
	// Watch calls dropped before a file goes back to the system, until stop.
	Watch(dropped func(file uint64)) (stop func())
}

// Memory is the memory of this process that peers may be granted. All sessions of a service share one.
type Memory struct {
	Files    Files
	Registry *registry.Registry
}

// Session is what grants memory to a peer. [*link.Session] implements it.
type Session interface {
	Caps() *link.Caps
	Grant(mem []byte, generation uint32, rights link.Rights) (link.Grant, error)
	Withdraw(g link.GrantID, done func())
	Returned() uint64
}

// Grants are the memory files that the peer of a session was granted. Make them with [New]. The lock of the service
// that they belong to guards them.
type Grants struct {
	session Session
	memory  *Memory
	known   map[key]grant
	gone    uint64 // files of this process that went back to the system since New
}

// key names a grant of a file. One file with two sets of rights is two grants: a peer that may only read the file in
// one plan may write to it in another.
type key struct {
	file   uint64
	rights link.Rights
}

// grant is the outcome of an attempt to grant a file.
type grant struct {
	id    link.GrantID // 0: there was no grant
	freed uint64       // of an attempt without success: Grants.freed at that time, or never
}

// never is the grant.freed of a file that the van cannot share.
const never = ^uint64(0)

// Generation is the generation of every grant of a file. A file is never used for something else.
const Generation = 1

// bothRights are all the rights that a grant can have.
const bothRights = link.RightRead | link.RightWrite

// New returns the grants of the peer of s. It has granted nothing so far.
func New(s Session, m *Memory) *Grants {
	return &Grants{session: s, memory: m, known: make(map[key]grant)}
}

// Reach returns how the peer reaches b with these rights, or the zero Target where it cannot. The first call for a
// file grants all of it. After a failure Reach asks the van again only when a grant or a file has come free. The
// memory must stay as it is (its region open, its registration held) until the peer does not use the Target any more.
func (g *Grants) Reach(b []byte, rights link.Rights) link.Target {
	at, ok := g.find(b)
	if !ok {
		return link.Target{}
	}
	k := key{at.File, rights}
	v, known := g.known[k]
	if v.id == 0 && (!known || v.freed != never && v.freed != g.freed()) {
		v = g.ask(k, at.Memory)
	}
	if v.id == 0 {
		return link.Target{}
	}
	return link.Target{Grant: v.id, Generation: Generation, Offset: at.Offset}
}

// find finds what can be granted of the memory that b lies in.
func (g *Grants) find(b []byte) (tensor.Place, bool) {
	if g.session.Caps().Registered {
		return g.memory.Registry.Find(b)
	}
	return g.memory.Files.Locate(b)
}

// Registered reports whether the van reaches b, so far as that is a matter of registration.
func (g *Grants) Registered(b []byte) bool {
	return !g.session.Caps().Registered || g.memory.Registry.Covers(b)
}

// Granted returns the grant of a file with these rights, or 0.
func (g *Grants) Granted(file uint64, rights link.Rights) link.GrantID {
	return g.known[key{file, rights}].id
}

// freed changes when there may be room for another grant.
func (g *Grants) freed() uint64 { return g.session.Returned() + g.gone }

// ask asks the van for a grant, and remembers the outcome.
func (g *Grants) ask(k key, mem []byte) grant {
	v := grant{freed: g.freed()} // before the attempt: what comes free meanwhile counts
	granted, err := g.session.Grant(mem, Generation, k.rights)
	switch {
	case err == nil:
		v.id = granted.ID
	case errors.Is(err, stepvan.ErrWouldBlock):
		return grant{} // the next call tries again
	case !errors.Is(err, errs.ErrNoGrant):
		v.freed = never
	}
	g.known[k] = v
	return v
}
