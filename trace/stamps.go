package trace

import "time"

// Indexes of Stamps, in the order of a request's life.
const (
	RequestStart     = iota // worker: the caller issued the request
	RequestPostSend         // worker: the transport has taken all of it
	RequestPostRecv         // server: all of it has arrived
	RequestProcess          // server: the program was given the batch
	ResponseStart           // server: the program answered
	ResponsePostSend        // server: the transport is about to get the answer
	ResponsePostRecv        // worker: all of the answer has arrived
	ResponseProcess         // worker: the handle is about to complete
	StampCount
)

// Stamps are the timestamps of one request at one server, in ns (see [Now]). A stamp that was not taken is 0. Stamps 0,
// 1, 6 and 7 are of the worker's clock, 2 to 5 of the server's.
//
// The methods name the parts of an exchange, which add up: Total = Send + Network + Server + Back.
type Stamps [StampCount]int64

// HasWorker reports whether all of the worker's stamps were taken.
func (s *Stamps) HasWorker() bool {
	return s[RequestStart] != 0 && s[RequestPostSend] != 0 && s[ResponsePostRecv] != 0 && s[ResponseProcess] != 0
}

// HasServer reports whether all of the server's stamps were taken. A request that was not answered has none.
func (s *Stamps) HasServer() bool {
	return s[RequestPostRecv] != 0 && s[RequestProcess] != 0 && s[ResponseStart] != 0 && s[ResponsePostSend] != 0
}

// Total is the time from issuing the request to its completion. Worker's clock.
func (s *Stamps) Total() time.Duration { return s.between(RequestStart, ResponseProcess) }

// Send is the time that the worker took to hand the request to the transport. Worker's clock.
func (s *Stamps) Send() time.Duration { return s.between(RequestStart, RequestPostSend) }

// Wait is the time between the end of sending and the arrival of the answer:
// network both ways and server. Worker's clock.
func (s *Stamps) Wait() time.Duration { return s.between(RequestPostSend, ResponsePostRecv) }

// Back is the time from the arrival of the answer to the completion of the
// handle. Worker's clock.
func (s *Stamps) Back() time.Duration { return s.between(ResponsePostRecv, ResponseProcess) }

// Server is the time that the request spent in the server: queue, compute and
// respond. Server's clock; 0 without its stamps.
func (s *Stamps) Server() time.Duration { return s.between(RequestPostRecv, ResponsePostSend) }

// Queue is the time from the arrival of the request until the server's program
// was given it. Server's clock.
func (s *Stamps) Queue() time.Duration { return s.between(RequestPostRecv, RequestProcess) }

// Compute is the time that the server's program took. Server's clock.
func (s *Stamps) Compute() time.Duration { return s.between(RequestProcess, ResponseStart) }

// Respond is the time that the server took to hand the answer to the
// transport. Server's clock.
func (s *Stamps) Respond() time.Duration { return s.between(ResponseStart, ResponsePostSend) }

// Network is the time between the two processes, both ways together: [Stamps.Wait] less [Stamps.Server]. It is the
// difference of two durations, so the clocks need not agree. Where the network takes next to nothing it can be some ns
// below 0.
func (s *Stamps) Network() time.Duration { return s.Wait() - s.Server() }

func (s *Stamps) between(a, b int) time.Duration { return time.Duration(s[b] - s[a]) }
