package affinity

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/stepvan/stepvan/internal/errs"
)

// process holds the claims of this process. All nodes of a process share its threads, so they share
// the claims.
var process claims

// claims are sets of cores. All threads of a process are bound to their union.
type claims struct {
	mu     sync.Mutex
	home   Set         // what the process could use before
	before map[int]Set // what each thread could
	sets   map[*Set]struct{}
}

// Home is the set of cores that the process could use before the first claim.
func Home() (Set, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	return process.cores()
}

// Claim binds every thread of the process, and later ones, to the cores of all claims together. The
// cores must be in Home, otherwise the error is a stepvan.ErrInvalid. release ends the claim. With
// the last one each thread gets its earlier cores back, and threads that started since then get
// Home.
func Claim(s Set) (release func() error, err error) { return process.claim(s) }

func (p *claims) cores() (Set, error) {
	if len(p.sets) > 0 {
		return p.home, nil
	}
	return Allowed()
}

func (p *claims) claim(s Set) (release func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	home, err := p.cores()
	if err != nil {
		return nil, err
	}
	if missing := s.Minus(home); s.Len() == 0 || missing.Len() > 0 {
		return nil, errs.Invalid("cores: not those of this process (got %q, want some of %v)", s, home)
	}
	if len(p.sets) == 0 {
		p.home, p.sets = home, map[*Set]struct{}{}
		if p.before, err = masks(); err != nil {
			return nil, err
		}
	}
	p.sets[&s] = struct{}{}
	var once sync.Once
	release = func() (err error) {
		once.Do(func() { err = p.release(&s) })
		return err
	}
	if err := p.apply(); err != nil {
		delete(p.sets, &s)
		return nil, errors.Join(err, p.apply())
	}
	return release, nil
}

func (p *claims) release(s *Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sets, s)
	return p.apply()
}

// rounds is how often apply looks for threads that started since the last look.
const rounds = 8

// apply binds all threads to the union of the claims. mu is held.
func (p *claims) apply() error {
	var all Set
	for s := range p.sets {
		all = all.Or(*s)
	}
	done := map[int]bool{}
	for range rounds {
		added, err := p.bindAll(all, done)
		if err != nil || added == 0 {
			return err
		}
	}
	return nil
}

// bindAll binds the threads that are not in done. When s is empty, each thread gets its earlier
// cores.
func (p *claims) bindAll(s Set, done map[int]bool) (added int, err error) {
	tids, err := threads()
	if err != nil {
		return 0, err
	}
	for _, tid := range tids {
		if done[tid] {
			continue
		}
		to := s
		if s.Len() == 0 {
			to = p.had(tid)
		}
		if err := bind(tid, to); err != nil && !gone(err) {
			return added, err
		}
		done[tid] = true
		added++
	}
	return added, nil
}

// had is the set of cores that the thread had before the first claim, or would have had.
func (p *claims) had(tid int) Set {
	if s, known := p.before[tid]; known {
		return s
	}
	return p.home
}

// masks returns the cores that each thread may use.
func masks() (map[int]Set, error) {
	tids, err := threads()
	if err != nil {
		return nil, err
	}
	all := make(map[int]Set, len(tids))
	for _, tid := range tids {
		switch s, err := maskOf(tid); {
		case gone(err):
		case err != nil:
			return nil, err
		default:
			all[tid] = s
		}
	}
	return all, nil
}

func threads() ([]int, error) {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("list the threads of the process: %w", err)
	}
	var tids []int
	for _, e := range list {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}
