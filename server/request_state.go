package server

// requestState is how far a request has come.
type requestState uint8

const (
	requestFree           requestState = iota + 1 // the slot holds no request
	requestArriving                               // it has its memory, and its payload is not all there
	requestQueued                                 // complete, for GetBatch to take
	requestRefused                                // holds the place of a refused request in its queue: see lockstep.go
	requestTaken                                  // handed out, for Respond to answer
	requestAnswering                              // Respond offers its answer to the link
	requestAnsweredAtStop                         // AnswerPushes has answered it, and the program still holds it
	requestClosing                                // Respond ends it without a message
	requestStates
)

// requestEvent is what happens to a request.
type requestEvent uint8

const (
	eventArrive       requestEvent = iota // its memory is claimed
	eventRefuse                           // it is refused, and lock-step needs its place
	eventComplete                         // all of it is here
	eventTake                             // GetBatch takes it
	eventAnswerAtStop                     // AnswerPushes answers it
	eventRespond                          // Respond begins
	eventUndo                             // Respond fails
	eventEnd                              // its slot becomes free
	requestEvents
)

// requestMoves has the state after each event. 0 means that the event does not happen in that state.
var requestMoves = [requestStates][requestEvents]requestState{
	requestFree:           {eventArrive: requestArriving, eventRefuse: requestRefused},
	requestArriving:       {eventComplete: requestQueued, eventEnd: requestFree},
	requestQueued:         {eventTake: requestTaken, eventEnd: requestFree},
	requestRefused:        {eventEnd: requestFree},
	requestTaken:          {eventRespond: requestAnswering, eventAnswerAtStop: requestAnsweredAtStop, eventEnd: requestFree},
	requestAnswering:      {eventUndo: requestTaken, eventEnd: requestFree},
	requestAnsweredAtStop: {eventRespond: requestClosing, eventEnd: requestFree},
	requestClosing:        {eventUndo: requestAnsweredAtStop, eventEnd: requestFree},
}

// on moves the request on after an event. It reports false, and changes nothing, when the event does not fit the state.
func (r *requestSlot) on(e requestEvent) bool {
	next := requestMoves[r.state][e]
	if next == 0 {
		return false
	}
	r.state = next
	return true
}

// answeredAtStop reports whether the worker has its answer from AnswerPushes.
func (r *requestSlot) answeredAtStop() bool {
	return r.state == requestAnsweredAtStop || r.state == requestClosing
}
