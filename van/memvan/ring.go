package memvan

// ring is a queue that grows to the most that was ever in it, and stays allocated.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// at returns the element i places behind the front; i must be below len.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ring[T]) pop() T {
	var zero T
	p := r.at(0)
	v := *p
	*p = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

// dropBack removes the newest element and returns it.
func (r *ring[T]) dropBack() T {
	var zero T
	p := r.at(r.n - 1)
	v := *p
	*p = zero
	r.n--
	return v
}

func (r *ring[T]) grow() {
	buf := make([]T, max(4, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
