package verbs

import (
	"fmt"
	"syscall"
)

// ConnectionParameters go with connect and accept. The transport bounds Private: 56 bytes to connect, 196 to accept.
type ConnectionParameters struct {
	Private         []byte
	ReadsIn         uint8 // reads and atomics of the peer that are served at a time
	ReadsOut        uint8 // own ones
	Retries         uint8 // 0 to 7; of the connecting side, for both
	NotReadyRetries uint8 // 0 to 7, where 7 is for ever
}

// ConnectionEventKind is what an event of rdma_cm says.
type ConnectionEventKind int

// The events of reliable connections.
const (
	AddressResolved   ConnectionEventKind = 0
	AddressError      ConnectionEventKind = 1
	RouteResolved     ConnectionEventKind = 2
	RouteError        ConnectionEventKind = 3
	ConnectRequest    ConnectionEventKind = 4
	ConnectError      ConnectionEventKind = 6
	Unreachable       ConnectionEventKind = 7
	Rejected          ConnectionEventKind = 8
	Established       ConnectionEventKind = 9
	Disconnected      ConnectionEventKind = 10
	DeviceRemoved     ConnectionEventKind = 11
	AddressChanged    ConnectionEventKind = 14
	TimeWaitExit      ConnectionEventKind = 15
	unknownConnection                     = 16
)

var connectionEvents = [unknownConnection]string{
	"address resolved", "the address is not reachable from any RDMA device", "route resolved", "no route for RDMA",
	"connect request", "connect response", "the connection failed", "the peer does not answer", "the peer refused the connection",
	"established", "disconnected", "the device was removed", "multicast join", "multicast error", "the address of the device changed",
	"time wait exit",
}

// String says what k means.
func (k ConnectionEventKind) String() string {
	if k >= 0 && k < unknownConnection {
		return connectionEvents[k]
	}
	return fmt.Sprintf("unknown event %d", int(k))
}

// ConnectionEvent is an event of rdma_cm. The caller owns everything in it.
type ConnectionEvent struct {
	Kind ConnectionEventKind

	// ID is what the event is about, nil where that is closed. Of a ConnectRequest it is a new one, which the receiver
	// accepts or rejects, and closes.
	ID       *ID
	Listener *ID // of a ConnectRequest

	Status     int // 0, a negative errno, or the reason of a rejection
	Parameters ConnectionParameters
}

// The reasons of a rejection in InfiniBand and RoCE that have a text.
const (
	rejectedNoListener = 8
	rejectedByProgram  = 28
)

// Err is the failure that the event reports, nil for all others. Its Op is "connect".
func (e *ConnectionEvent) Err() error {
	switch e.Kind {
	case AddressError, RouteError, ConnectError, Unreachable, Rejected, DeviceRemoved:
	default:
		return nil
	}
	device := ""
	if e.ID != nil {
		device = e.ID.DeviceName()
	}
	return &ConnectionError{Device: device, Kind: e.Kind, Status: e.Status, Private: e.Parameters.Private}
}

// ConnectionError is a connection that failed.
type ConnectionError struct {
	Device  string
	Kind    ConnectionEventKind
	Status  int    // as in ConnectionEvent
	Private []byte // what the peer said when it refused
}

// Error says why.
func (e *ConnectionError) Error() string {
	why := ""
	switch {
	case e.Kind == Rejected && e.Status == rejectedNoListener:
		why = "nothing listens at the port"
	case e.Kind == Rejected && e.Status == rejectedByProgram:
		why = "by its program"
	case e.Status < 0:
		why = syscall.Errno(-e.Status).Error()
	case e.Status > 0:
		why = fmt.Sprintf("status %d", e.Status)
	}
	return join("connect", e.Device, e.Kind.String(), why)
}

// Unwrap returns the errno, if there is one.
func (e *ConnectionError) Unwrap() error {
	if e.Status < 0 {
		return syscall.Errno(-e.Status)
	}
	return nil
}
