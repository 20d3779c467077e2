package peer

// linked is an object that knows the next one in a queue.
type linked[T any] interface {
	*T
	following() **T
}

// queue has objects in order. The zero value is empty.
type queue[T any, P linked[T]] struct{ first, last P }

func (q *queue[T, P]) empty() bool { return q.first == nil }

func (q *queue[T, P]) push(x P) {
	*x.following() = nil
	if q.first == nil {
		q.first = x
	} else {
		*q.last.following() = x
	}
	q.last = x
}

// unpop puts back what pop has returned.
func (q *queue[T, P]) unpop(x P) {
	if *x.following() = q.first; q.first == nil {
		q.last = x
	}
	q.first = x
}

// pop takes the first object of a queue that is not empty.
func (q *queue[T, P]) pop() P {
	x := q.first
	q.first = *x.following()
	*x.following() = nil
	return x
}

// remove takes an object out, and reports whether it was there.
func (q *queue[T, P]) remove(x P) (found bool) {
	var kept queue[T, P]
	for !q.empty() {
		if y := q.pop(); y == x {
			found = true
		} else {
			kept.push(y)
		}
	}
	*q = kept
	return found
}
