package peertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// member is one peer of a case.
type member struct {
	rank, size int
	peer       Peer
	memory     *tensor.Allocator
	shares     bool // members see each other's memory
	ctx        context.Context
	rng        *rand.Rand // the same at all members

	// exchange waits until all living members have called it. It returns what each has brought, and nothing of the
	// dead.
	exchange func(mine []byte) [][]byte
	die      func()        // ends this member at once, as SIGKILL does
	dead     chan struct{} // closed by die
	quit     func()        // ends it in order

	regions []tensor.Tensor
}

// violation ends a case.
type violation string

func (m *member) fail(format string, args ...any) {
	panic(violation(fmt.Sprintf("peer %d: ", m.rank) + fmt.Sprintf(format, args...)))
}

func (m *member) must(err error, doing string) {
	if err != nil {
		m.fail("%s: %v", doing, err)
	}
}

func (m *member) want(ok bool, format string, args ...any) {
	if !ok {
		m.fail(format, args...)
	}
}

// waitForAll waits for the other members.
func (m *member) waitForAll() { m.exchange(nil) }

// wait waits until an operation has succeeded.
func (m *member) wait(h Handle, err error) {
	m.must(err, "begin an operation")
	m.must(h.Wait(m.ctx), "an operation")
}

// refused is the error of an operation that has to fail.
func (m *member) refused(h Handle, err error, kind error, what string) error {
	if err == nil {
		err = h.Wait(m.ctx)
	}
	m.want(errors.Is(err, kind), "%s: wrong error (got %v, want %v)", what, err, kind)
	return err
}

// where says in which memory a tensor lies.
type where int

const (
	heap where = iota
	file
)

// empty makes a tensor of n numbers.
func (m *member) empty(at where, n int64) []int64 {
	if at == heap {
		return make([]int64, n)
	}
	x, err := m.memory.Zeros(tensor.Int64, n)
	m.must(err, "memory")
	m.regions = append(m.regions, x)
	list, err := tensor.As[int64](x)
	m.must(err, "memory")
	return list
}

// view is a view of numbers.
func (m *member) view(list []int64, shape tensor.Shape, strides []int64, from int64) tensor.Strided {
	for i := range m.regions {
		if all, _ := tensor.As[int64](m.regions[i]); len(all) > 0 && len(list) > 0 && &all[0] == &list[0] {
			v, err := m.regions[i].AsStrided(shape, strides, from)
			m.must(err, "view")
			return v
		}
	}
	x, err := tensor.FromSlice(list)
	m.must(err, "view")
	v, err := x.AsStrided(shape, strides, from)
	m.must(err, "view")
	return v
}

// all is a view of all numbers.
func (m *member) all(list []int64) tensor.Strided {
	return m.view(list, tensor.ShapeOf(int64(len(list))), []int64{1}, 0)
}

// cols is a view of n columns of a matrix whose rows have width numbers.
func (m *member) cols(list []int64, width, from, n int64) tensor.Strided {
	return m.view(list, tensor.ShapeOf(int64(len(list))/width, n), []int64{width, 1}, from)
}

// fill writes numbers that follow from seed.
func fill(list []int64, seed int) {
	for i := range list {
		list[i] = int64(seed)<<32 + int64(i)
	}
}

// poison overwrites what is not to be used.
func poison(list []int64) {
	for i := range list {
		list[i] = -7
	}
}

// clean reports whether nobody has written to what was poisoned.
func clean(list []int64) bool {
	return !slices.ContainsFunc(list, func(n int64) bool { return n != -7 })
}

// is reports whether the numbers have the values that fill writes.
func is(list []int64, seed int) bool {
	for i, n := range list {
		if n != int64(seed)<<32+int64(i) {
			return false
		}
	}
	return true
}

// free gives the memory back. An operation that has failed may hold it for a moment.
func (m *member) free() {
	for _, x := range m.regions {
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			err := x.Region().Close()
			if err == nil {
				break
			}
			m.want(time.Now().Before(end), "memory is held: %v", err)
		}
	}
	m.regions = nil
}

// ranks lists all members but one, which is -1 for none.
func (m *member) ranks(but int) (list []stepvan.Rank) {
	for i := range m.size {
		if i != but {
			list = append(list, stepvan.Rank(i))
		}
	}
	return list
}
