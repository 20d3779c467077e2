package rdma

// requests counts what was added to a send queue. Requests are numbered from 1. Guarded by endpoint.mu.
type requests struct {
	depth    uint32
	added    uint32 // the number of the last one
	retired  uint32 // the last one that is known to be complete
	signaled uint32 // the last one that will say so
}

// reservedRequests is the room in a send queue that messages leave to records, credit and the end of the connection.
const reservedRequests = 8

// room is how many more requests a message may add.
func (q *requests) room() int { return q.all() - reservedRequests }

// all is how many more requests fit.
func (q *requests) all() int { return int(q.depth - (q.added - q.retired)) }

// next numbers a request. Without a signaled one in every half queue, nothing would say when there is room again.
func (q *requests) next(signal bool) (number uint32, signaled bool) {
	q.added++
	if signal || q.added-q.signaled >= q.depth/2 {
		q.signaled = q.added
		return q.added, true
	}
	return q.added, false
}

// retire notes that a request and all before it are complete. It takes the low bits of the number, as completions have
// them, and returns the number.
func (q *requests) retire(low uint32) uint32 {
	q.retired += (low - q.retired) & numberMask
	return q.retired
}
