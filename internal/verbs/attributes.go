package verbs

import "net/netip"

// Options for Load.
type Options struct {
	Trace bool // keep the stack that created each object, for Live; for tests
}

// Object is an open object, as Live lists it.
type Object struct {
	Name  string // "memory region of mlx5_0 (4096 bytes at 0x7f..)"
	Stack string // of its creation; "" without Options.Trace
}

// ForkSafety is what happens to registered memory when the process forks.
type ForkSafety int

// ForkCopies: the kernel copies pinned pages for the child. ForkMarked: libibverbs keeps them from the child.
const (
	ForkMarked ForkSafety = 1
	ForkCopies ForkSafety = 2
)

// Transport is the protocol family of a device.
type Transport int

// The transports with reliable connections. InfiniBand counts RoCE in.
const (
	InfiniBand Transport = 0
	IWARP      Transport = 1
)

// DeviceInfo is a device that libibverbs has a provider for.
type DeviceInfo struct {
	Name      string // "mlx5_0"
	Uverbs    string // "uverbs0", of /dev/infiniband
	Path      string // in sysfs: "/sys/class/infiniband/mlx5_0"
	GUID      uint64
	Transport Transport
}

// DeviceAttributes are the limits of a device.
type DeviceAttributes struct {
	Firmware             string
	VendorID, PartID     uint32
	Ports                int
	QPs, QPRequests      int // queue pairs; requests of each side
	Segments             int // of a request
	ReadSegments         int // of an OpRead
	CQs, CQEntries       int
	MRs, PDs, Windows    int
	MRBytes              uint64
	PageSizes            uint64 // a mask
	ReadsIn, ReadsOut    int    // at a time, of a queue pair
	WindowsOfType2       bool
	CompletionVectors    int
	OnlyBoundByQueuePair bool // type 2A: a window is checked against the queue pair alone, not its protection domain too
}

// PortState is the state of a port.
type PortState int

// PortActive is the state in which a port carries messages.
const PortActive PortState = 4

// LinkLayer is what a port speaks.
type LinkLayer int

// The link layers.
const (
	LinkInfiniBand LinkLayer = 1
	LinkEthernet   LinkLayer = 2
)

// PortAttributes are the state of a port and what it speaks.
type PortAttributes struct {
	State        PortState
	PhysState    int
	MTU, MaxMTU  int // bytes
	LinkLayer    LinkLayer
	GIDs         int // length of the table
	LID          uint16
	MaxMessage   uint32
	Width, Speed int // as codes of the library
}

// GIDType is the protocol of an entry of a GID table.
type GIDType int

// The types of entries.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)

// GIDEntry is an entry of the GID table of a port.
type GIDEntry struct {
	GID       netip.Addr // IPv6; an IPv4 address is mapped
	Type      GIDType
	Interface int // index of the network interface; 0 for none
}

// EventKind is what an asynchronous event says.
type EventKind int

// The events that concern reliable connections.
const (
	EventCQError      EventKind = 0
	EventQPFatal      EventKind = 1
	EventQPRequest    EventKind = 2
	EventQPAccess     EventKind = 3
	EventEstablished  EventKind = 4
	EventDeviceFatal  EventKind = 8
	EventPortActive   EventKind = 9
	EventPortDown     EventKind = 10
	EventLIDChanged   EventKind = 11
	EventLastReceived EventKind = 16
	EventGIDChanged   EventKind = 18
)

// Event is an asynchronous event of a device. At most one of QP and CQ is set; they are nil for those of other owners.
type Event struct {
	Kind EventKind
	QP   *QP
	CQ   *CQ
	Port int
}

// QPState is the state of a queue pair.
type QPState int

// The states of a queue pair.
const (
	QPReset QPState = iota
	QPInit
	QPReadyToReceive
	QPReadyToSend
	QPDrained
	QPSendError
	QPError
)

// QPOptions is what a queue pair is made of. It is given at least the numbers asked for.
type QPOptions struct {
	SendCQ, ReceiveCQ             *CQ
	SendRequests, ReceiveRequests int
	SendSegments, ReceiveSegments int // per request
	Inline                        int // bytes per request
}

// QPCaps is what a queue pair has been given.
type QPCaps struct {
	SendRequests, ReceiveRequests int
	SendSegments, ReceiveSegments int
	Inline                        int
}

// Path is the way to a peer of a queue pair that is connected without rdma_cm, and the terms of the connection.
type Path struct {
	Port                       int
	GIDIndex                   int
	MTU                        int // bytes
	FlowLabel                  uint32
	TrafficClass, ServiceLevel uint8
	HopLimit                   uint8

	Remote          QPNumber
	RemoteGID       netip.Addr
	RemoteLID       uint16 // InfiniBand; 0 for RoCE
	FirstSent       uint32 // the first packet number of this side
	FirstReceived   uint32 // that of the peer
	ReadsIn         uint8  // reads and atomics of the peer that are served at a time
	ReadsOut        uint8  // own ones
	AckTimeout      uint8  // 4.096 us times 2 to the power of it; 0 is for ever
	Retries         uint8  // 0 to 7
	NotReadyRetries uint8  // 0 to 7, where 7 is for ever
	NotReadyTimer   uint8  // code of the least wait before such a retry
}
