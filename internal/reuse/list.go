package reuse

// List has the objects that wait for their next use. The zero value is ready. The lock of its owner guards it. In the
// steady state it does not allocate.
type List[T any] struct {
	free []*T
	made int
}

// Take returns an object as it was put back, or a zero one.
func (l *List[T]) Take() *T {
	n := len(l.free)
	if n == 0 {
		l.made++
		return new(T)
	}
	x := l.free[n-1]
	l.free = l.free[:n-1]
	return x
}

// Put takes an object back, which the caller has emptied.
func (l *List[T]) Put(x *T) { l.free = append(l.free, x) }

// Made returns how many objects there are, those in use included.
func (l *List[T]) Made() int { return l.made }

// Unused returns how many objects wait for their next use.
func (l *List[T]) Unused() int { return len(l.free) }
