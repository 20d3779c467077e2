package verbs

import "fmt"

// Status is how a request ended.
type Status uint32

// The statuses that programs tell apart. The others are in statusTexts only.
const (
	StatusSuccess       Status = 0
	StatusFlushed       Status = 5
	StatusRemoteAccess  Status = 10
	StatusRetryExceeded Status = 12
	StatusNotReady      Status = 13
	StatusTimeout       Status = 20
)

// statusTexts say what each status means.
var statusTexts = [...]string{
	"success",
	"the message was longer than the receive buffer or the device allows",
	"the queue pair cannot execute the request",
	"local EE context error",
	"a local segment is outside of its memory region, or the region lacks the right",
	"flushed, since the queue pair failed or was shut",
	"the memory window could not be bound",
	"the peer sent an unexpected answer",
	"the receiving queue pair may not write there",
	"the peer refused the request as invalid",
	"the peer refused the access: wrong key, range or right",
	"the peer could not complete the request",
	"the peer did not answer: it is dead, or the path to it is down",
	"the peer had no receive posted (RNR)",
	"local RDD violation",
	"the peer refused the read as invalid",
	"the peer aborted the request",
	"invalid EE context number",
	"invalid EE context state",
	"the device failed",
	"no response in time",
	"general error",
	"tag matching error",
	"tag matching rendezvous incomplete",
}

// String says what s means.
func (s Status) String() string {
	if int(s) < len(statusTexts) {
		return statusTexts[s]
	}
	return fmt.Sprintf("unknown status %d", uint32(s))
}
