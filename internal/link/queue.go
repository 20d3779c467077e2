package link

// queue is a FIFO of elements that carry their own queueLink, so that push and pop do not allocate.
type queue[T any] struct{ head, tail *queueLink[T] }

// queueLink is a field of an element that can be in one queue at a time.
type queueLink[T any] struct {
	next *queueLink[T]
	of   *T
}

// push appends x, whose link is l.
func (q *queue[T]) push(x *T, l *queueLink[T]) {
	l.of, l.next = x, nil
	if q.tail != nil {
		q.tail.next = l
	} else {
		q.head = l
	}
	q.tail = l
}

// pop takes the first element out. The queue must not be empty.
func (q *queue[T]) pop() *T {
	l := q.head
	q.head = l.next
	if q.head == nil {
		q.tail = nil
	}
	l.next = nil
	return l.of
}

// first returns the first element, or nil.
func (q *queue[T]) first() *T {
	if q.head == nil {
		return nil
	}
	return q.head.of
}

// last returns the last element, or nil.
func (q *queue[T]) last() *T {
	if q.tail == nil {
		return nil
	}
	return q.tail.of
}

func (q *queue[T]) empty() bool { return q.head == nil }
