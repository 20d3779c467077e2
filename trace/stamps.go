package trace

import "time"

// These are the indexes of [Stamps], in the order in which a request passes them.
const (
	RequestStart     = iota // worker: the caller issued the request
	RequestPostSend         // worker: the transport has taken the whole request
	RequestPostRecv         // server: the whole request has arrived
	RequestProcess          // server: GetBatch gave the request to the program
	ResponseStart           // server: the program answered
	ResponsePostSend        // server: the transport is about to get the answer
	ResponsePostRecv        // worker: the whole answer has arrived
	ResponseProcess         // worker: the handle is about to complete
	StampCount              // the number of stamps
)

// Stamps are the time stamps of one request, in ns since 1970 (see [Now]). A stamp that was not taken is 0. The worker
// reads stamps 0, 1, 6 and 7 from its clock. The server reads stamps 2 to 5 from its own.
//
// The methods return the parts of a request, which add up: Total = Send + Network + Server + Back.
type Stamps [StampCount]int64

// HasWorker reports whether all of the worker's stamps were taken.
func (s *Stamps) HasWorker() bool {
	return s[RequestStart] != 0 && s[RequestPostSend] != 0 && s[ResponsePostRecv] != 0 && s[ResponseProcess] != 0
}

// HasServer reports whether all of the server's stamps were taken. A request without an answer has none of them.
func (s *Stamps) HasServer() bool {
	return s[RequestPostRecv] != 0 && s[RequestProcess] != 0 && s[ResponseStart] != 0 && s[ResponsePostSend] != 0
}

// Total is the time from issuing the request to its completion, by the worker's clock.
func (s *Stamps) Total() time.Duration { return s.between(RequestStart, ResponseProcess) }

// Send is the time that the worker took to hand the request to the transport, by the worker's clock.
func (s *Stamps) Send() time.Duration { return s.between(RequestStart, RequestPostSend) }

// Wait is the time from the end of sending to the arrival of the answer, by the worker's clock. It is the time on the
// network both ways and in the server.
func (s *Stamps) Wait() time.Duration { return s.between(RequestPostSend, ResponsePostRecv) }

// Back is the time from the arrival of the answer to the completion of the handle, by the worker's clock.
func (s *Stamps) Back() time.Duration { return s.between(ResponsePostRecv, ResponseProcess) }

// Server is the time that the request spent in the server, by the server's clock. It is the sum of Queue, Compute and
// Respond. Without the server's stamps it is 0.
func (s *Stamps) Server() time.Duration { return s.between(RequestPostRecv, ResponsePostSend) }

// Queue is the time from the arrival of the request until GetBatch gave it to the program, by the server's clock.
func (s *Stamps) Queue() time.Duration { return s.between(RequestPostRecv, RequestProcess) }

// Compute is the time that the server's program took to answer the request, by the server's clock.
func (s *Stamps) Compute() time.Duration { return s.between(RequestProcess, ResponseStart) }

// Respond is the time that the server took to hand the answer to the transport, by the server's clock.
func (s *Stamps) Respond() time.Duration { return s.between(ResponseStart, ResponsePostSend) }

// Network is the time on the network, both ways together. It is [Stamps.Wait] minus [Stamps.Server]. Each of the two is
// a duration by one clock, so the clocks need not agree. On a very fast network the result can be a few ns below 0.
func (s *Stamps) Network() time.Duration { return s.Wait() - s.Server() }

func (s *Stamps) between(a, b int) time.Duration { return time.Duration(s[b] - s[a]) }
