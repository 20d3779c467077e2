package verbs

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/stepvan/stepvan"
)

// registry knows all open objects of a library, and which uses which. Its mutex is held for the bookkeeping alone:
// calls of the libraries may take long.
type registry struct {
	mu    sync.Mutex
	live  map[*resource]struct{}
	trace bool
}

// resource is the bookkeeping of an object.
type resource struct {
	registry *registry
	name     string
	uses     []*resource
	users    map[*resource]struct{}
	closed   bool // or about to be
	made     []uintptr
}

// create makes an object of the resources in uses, which must be open. make calls the library. The resource r must
// stay where it is.
func (g *registry) create(op string, r *resource, name string, uses []*resource, make func() error) error {
	if err := g.add(op, r, name, uses); err != nil {
		return err
	}
	if err := make(); err != nil {
		g.remove(r)
		return err
	}
	return nil
}

func (g *registry) add(op string, r *resource, name string, uses []*resource) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range uses {
		if u.closed {
			return fmt.Errorf("%s: %s: %w", op, u.name, stepvan.ErrClosed)
		}
		if u.registry != g {
			return fmt.Errorf("%w: %s: %s belongs to another library", stepvan.ErrInvalid, op, u.name)
		}
	}
	*r = resource{registry: g, name: name, uses: uses, users: map[*resource]struct{}{}}
	for _, u := range uses {
		u.users[r] = struct{}{}
	}
	if g.live == nil {
		g.live = map[*resource]struct{}{}
	}
	g.live[r] = struct{}{}
	if g.trace {
		r.made = make([]uintptr, 32)
		r.made = r.made[:runtime.Callers(3, r.made)]
	}
	return nil
}

func (g *registry) remove(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.closed = true
	for _, u := range r.uses {
		delete(u.users, r)
	}
	delete(g.live, r)
}

// move has r use another resource instead of one.
func (r *resource) move(op string, from, to *resource) error {
	g := r.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.closed || to.closed {
		return fmt.Errorf("%s: %s: %w", op, r.name, stepvan.ErrClosed)
	}
	r.uses = slices.Replace(r.uses, slices.Index(r.uses, from), slices.Index(r.uses, from)+1, to)
	delete(from.users, r)
	to.users[r] = struct{}{}
	return nil
}

// open returns an error once r is closed.
func (r *resource) open(op string) error {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if r.closed {
		return fmt.Errorf("%s: %s: %w", op, r.name, stepvan.ErrClosed)
	}
	return nil
}

// rename gives r the name under which the library knows it.
func (r *resource) rename(name string) {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	r.name = name
}

// close destroys the object, unless another uses it. Once it is closed, or another goroutine closes it, close has no
// effect. If destroy fails, the object stays open.
func (r *resource) close(destroy func() error) error {
	if r.registry == nil {
		return nil // never made
	}
	begun, err := r.beginClose()
	if !begun {
		return err
	}
	if err := destroy(); err != nil {
		r.registry.mu.Lock()
		defer r.registry.mu.Unlock()
		r.closed = false
		return err
	}
	r.registry.remove(r)
	return nil
}

func (r *resource) beginClose() (begun bool, err error) {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if r.closed {
		return false, nil
	}
	if len(r.users) > 0 {
		users := make([]string, 0, len(r.users))
		for u := range r.users {
			users = append(users, u.name)
		}
		slices.Sort(users)
		return false, &InUseError{Object: r.name, Users: users}
	}
	r.closed = true
	return true, nil
}

// objects lists what is open, by name.
func (g *registry) objects() (all []Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.live {
		all = append(all, Object{Name: r.name, Stack: stack(r.made)})
	}
	slices.SortFunc(all, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func stack(callers []uintptr) string {
	if len(callers) == 0 {
		return ""
	}
	var b strings.Builder
	for frames := runtime.CallersFrames(callers); ; {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}
