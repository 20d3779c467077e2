package server

import "fmt"

// requestState is how far a request has come.
type requestState uint8

const (
	requestFree           requestState = iota // the slot holds no request
	requestReceiving                          // its payload is being read
	requestQueued                             // complete, for GetBatch to take
	requestRefused                            // holds the place of a refused request in its queue: see lockstep.go
	requestTaken                              // handed out, for Respond to answer
	requestAnswering                          // Respond offers its answer to the link
	requestAnsweredAtStop                     // AnswerPushes has answered it, the program still holds it
	requestClosing                            // Respond ends it without a message
	requestStates
)

// requestMoves has for each state a bit for each state that may follow.
var requestMoves = [requestStates]uint16{
	requestFree:           1<<requestReceiving | 1<<requestRefused,
	requestReceiving:      1<<requestQueued | 1<<requestFree,
	requestQueued:         1<<requestTaken | 1<<requestFree,
	requestRefused:        1 << requestFree,
	requestTaken:          1<<requestAnswering | 1<<requestAnsweredAtStop | 1<<requestFree,
	requestAnswering:      1<<requestTaken | 1<<requestFree,
	requestAnsweredAtStop: 1<<requestClosing | 1<<requestFree,
	requestClosing:        1<<requestAnsweredAtStop | 1<<requestFree,
}

var requestStateNames = [requestStates]string{
	"free", "receiving", "queued", "refused", "taken", "answering", "answered at stop", "closing",
}

func (s requestState) String() string { return requestStateNames[s] }

// become moves the request to a state that may follow its own. Anything else is a mistake of this package.
func (r *requestSlot) become(next requestState) {
	if requestMoves[r.state]>>next&1 == 0 {
		r.state.refuse(next)
	}
	r.state = next
}

//go:noinline
func (s requestState) refuse(next requestState) {
	panic(fmt.Sprintf("server: a request that is %v cannot become %v", s, next))
}

// respondTo moves a request that the program holds on to its answer. It reports false while another Respond has it.
func (r *requestSlot) respondTo() bool {
	switch r.state {
	case requestTaken:
		r.become(requestAnswering)
	case requestAnsweredAtStop:
		r.become(requestClosing)
	default:
		return false
	}
	return true
}

// undoRespond gives the request back to the program.
func (r *requestSlot) undoRespond() {
	if r.state == requestClosing {
		r.become(requestAnsweredAtStop)
	} else {
		r.become(requestTaken)
	}
}

// answeredAtStop reports whether the worker has its answer from AnswerPushes.
func (r *requestSlot) answeredAtStop() bool {
	return r.state == requestAnsweredAtStop || r.state == requestClosing
}
