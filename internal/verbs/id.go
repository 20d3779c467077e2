//go:build cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// EventChannel brings the events of its connections.
type EventChannel struct {
	resource
	library *Library
	channel *C.struct_abi_event_channel
	fd      int
	ids     lookup
}

// NewEventChannel makes a channel.
func (l *Library) NewEventChannel() (*EventChannel, error) {
	c := &EventChannel{library: l}
	err := l.objects.create(opEventChannel, &c.resource, "event channel", nil, func() error {
		var err error
		if c.channel, err = C.sv_create_event_channel(); c.channel == nil {
			return call(opEventChannel, "", err)
		}
		c.fd = int(c.channel.fd)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// FD is readable while there are events. It does not block.
func (c *EventChannel) FD() int { return c.fd }

// Next reads the next event. ok is false when no event waits. The channel must be open.
func (c *EventChannel) Next() (event ConnectionEvent, ok bool, err error) {
	if c.channel == nil {
		return ConnectionEvent{}, false, errChannelClosed
	}
	var e C.struct_sv_cm_event
	raw, err := C.sv_cm_event(c.channel, &e)
	switch {
	case raw != nil:
		defer C.sv_ack_cm_event(raw)
	case errors.Is(err, syscall.EAGAIN):
		return ConnectionEvent{}, false, nil
	default:
		return ConnectionEvent{}, false, call("get_cm_event", "", err)
	}
	event = ConnectionEvent{
		Kind:   ConnectionEventKind(e.event),
		Status: int(e.status),
		Parameters: ConnectionParameters{
			ReadsIn:         uint8(e.conn.responder_resources),
			ReadsOut:        uint8(e.conn.initiator_depth),
			Retries:         uint8(e.conn.retry_count),
			NotReadyRetries: uint8(e.conn.rnr_retry_count),
		},
	}
	if n := C.int(e.conn.private_data_len); n > 0 {
		event.Parameters.Private = C.GoBytes(unsafe.Pointer(&e.private_data), n)
	}
	if event.Kind != ConnectRequest {
		event.ID, _ = c.ids.find(uintptr(unsafe.Pointer(e.id))).(*ID)
		return event, true, nil
	}
	event.Listener, _ = c.ids.find(uintptr(unsafe.Pointer(e.listen_id))).(*ID)
	event.ID, err = c.enter(e.id)
	return event, err == nil, err
}

// enter makes the Go side of a connection that a listener got.
func (c *EventChannel) enter(id *C.struct_abi_cm_id) (*ID, error) {
	i, err := c.newID(func() (*C.struct_abi_cm_id, error) { return id, nil })
	if err != nil {
		_ = destroy("destroy_id", "", C.SV_ID, unsafe.Pointer(id))
	}
	return i, err
}

// Close destroys the channel, after its connections.
func (c *EventChannel) Close() error {
	return c.close(func() error {
		err := destroy("destroy_event_channel", "", C.SV_EVENT_CHANNEL, unsafe.Pointer(c.channel))
		c.channel = nil
		return err
	})
}

// ID is a connection, or a listener, of rdma_cm. All that it begins ends with an event of its channel.
type ID struct {
	resource

	mu      sync.Mutex // guards what follows against Close and Migrate
	channel *EventChannel
	id      *C.struct_abi_cm_id
}

// NewID makes a connection that is not bound.
func (c *EventChannel) NewID() (*ID, error) {
	return c.newID(func() (*C.struct_abi_cm_id, error) {
		id, err := C.sv_create_id(c.channel)
		return id, err
	})
}

func (c *EventChannel) newID(make func() (*C.struct_abi_cm_id, error)) (*ID, error) {
	i := &ID{channel: c}
	err := c.library.objects.create("create_id", &i.resource, "connection", []*resource{&c.resource}, func() error {
		var err error
		if i.id, err = make(); i.id == nil {
			return call("create_id", "", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.ids.add(uintptr(unsafe.Pointer(i.id)), i)
	return i, nil
}

// do calls a function of rdma_cm, unless the connection is closed.
func (i *ID) do(op string, f func(id *C.struct_abi_cm_id) C.int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return fmt.Errorf("%s: %w", op, errIDClosed)
	}
	return result(op, deviceName(i.id), f(i.id))
}

// Bind gives the connection an address of this machine, and so its device. Port 0 chooses one.
func (i *ID) Bind(to netip.AddrPort) error {
	a, err := newSockaddr(to)
	if err != nil {
		return fmt.Errorf("bind_addr: %w", err)
	}
	return i.do("bind_addr", func(id *C.struct_abi_cm_id) C.int { return C.sv_bind(id, unsafe.Pointer(&a)) })
}

// Resolve finds the device and the address of the peer. from is the address of this side, or the zero value. The event
// is AddressResolved or AddressError.
func (i *ID) Resolve(from, to netip.AddrPort, patience time.Duration) error {
	var source unsafe.Pointer
	if from.IsValid() {
		a, err := newSockaddr(from)
		if err != nil {
			return fmt.Errorf("resolve_addr: %w", err)
		}
		source = unsafe.Pointer(&a)
	}
	a, err := newSockaddr(to)
	if err != nil {
		return fmt.Errorf("resolve_addr: %w", err)
	}
	return i.do("resolve_addr", func(id *C.struct_abi_cm_id) C.int {
		return C.sv_resolve_addr(id, source, unsafe.Pointer(&a), C.int(patience.Milliseconds()))
	})
}

// ResolveRoute finds the way to the address. The event is RouteResolved or RouteError.
func (i *ID) ResolveRoute(patience time.Duration) error {
	return i.do("resolve_route", func(id *C.struct_abi_cm_id) C.int { return C.sv_resolve_route(id, C.int(patience.Milliseconds())) })
}

// Listen takes connections, each as a ConnectRequest.
func (i *ID) Listen(backlog int) error {
	return i.do("listen", func(id *C.struct_abi_cm_id) C.int { return C.sv_listen(id, C.int(backlog)) })
}

// NewQP makes the queue pair of the connection, which the connection brings through its states. p must be of the device
// of the connection. Its Close comes before that of the connection.
func (i *ID) NewQP(p *PD, o QPOptions) (*QP, error) { return p.newQP(i, o) }

// Connect asks the peer for the connection. The event is Established, Rejected, Unreachable or ConnectError.
func (i *ID) Connect(p ConnectionParameters) error {
	return i.with("connect", p, func(id *C.struct_abi_cm_id, c C.struct_abi_conn_param, private unsafe.Pointer) C.int {
		return C.sv_connect(id, c, private)
	})
}

// Accept takes a ConnectRequest. The event is Established, which may come after the first completion.
func (i *ID) Accept(p ConnectionParameters) error {
	return i.with("accept", p, func(id *C.struct_abi_cm_id, c C.struct_abi_conn_param, private unsafe.Pointer) C.int {
		return C.sv_accept(id, c, private)
	})
}

func (i *ID) with(op string, p ConnectionParameters, f func(*C.struct_abi_cm_id, C.struct_abi_conn_param, unsafe.Pointer) C.int) error {
	private, err := privateData(op, p.Private)
	if err != nil {
		return err
	}
	c := C.struct_abi_conn_param{
		private_data_len:    C.uint8_t(len(p.Private)),
		responder_resources: C.uint8_t(p.ReadsIn),
		initiator_depth:     C.uint8_t(p.ReadsOut),
		retry_count:         C.uint8_t(p.Retries),
		rnr_retry_count:     C.uint8_t(p.NotReadyRetries),
	}
	return i.do(op, func(id *C.struct_abi_cm_id) C.int { return f(id, c, private) })
}

// Reject refuses a ConnectRequest. The transport bounds why to 148 bytes.
func (i *ID) Reject(why []byte) error {
	private, err := privateData("reject", why)
	if err != nil {
		return err
	}
	return i.do("reject", func(id *C.struct_abi_cm_id) C.int { return C.sv_reject(id, private, C.uint8_t(len(why))) })
}

func privateData(op string, b []byte) (unsafe.Pointer, error) {
	if len(b) > 255 {
		return nil, fmt.Errorf("%w: %s: private data too long (got %d bytes, want at most 255)", stepvan.ErrInvalid, op, len(b))
	}
	return unsafe.Pointer(unsafe.SliceData(b)), nil
}

// Disconnect ends the connection: its queue pair fails, so that what was posted completes as StatusFlushed, and the
// peer gets Disconnected. The peer answers with its own Disconnect, and until then its queue pair does not fail. After
// the answer this side gets Disconnected, too.
func (i *ID) Disconnect() error {
	return i.do("disconnect", func(id *C.struct_abi_cm_id) C.int { return C.sv_disconnect(id) })
}

// SetTypeOfService sets the traffic class of a connection that is not resolved yet.
func (i *ID) SetTypeOfService(tos uint8) error { return i.set(C.ABI_RDMA_OPTION_ID_TOS, int(tos)) }

// SetAckTimeout sets how long the device waits for an acknowledgement: 4.096 us times 2 to the power of code. It comes
// before ResolveRoute, or before Accept.
func (i *ID) SetAckTimeout(code uint8) error {
	return i.set(C.ABI_RDMA_OPTION_ID_ACK_TIMEOUT, int(code))
}

// SetReuseAddress lets a listener bind to the port of an earlier one.
func (i *ID) SetReuseAddress() error { return i.set(C.ABI_RDMA_OPTION_ID_REUSEADDR, 1) }

func (i *ID) set(option C.int, value int) error {
	return i.do("set_option", func(id *C.struct_abi_cm_id) C.int { return C.sv_set_option(id, option, C.int(value)) })
}

// Migrate has the connection report its events, also those that wait, to another channel. No Next of its channel may
// run meanwhile.
func (i *ID) Migrate(to *EventChannel) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return fmt.Errorf("migrate_id: %w", errIDClosed)
	}
	if err := i.move("migrate_id", &i.channel.resource, &to.resource); err != nil {
		return err
	}
	address := uintptr(unsafe.Pointer(i.id))
	to.ids.add(address, i) // before an event can come there
	if err := result("migrate_id", deviceName(i.id), C.sv_migrate(i.id, to.channel)); err != nil {
		to.ids.remove(address)
		return errors.Join(err, i.move("migrate_id", &to.resource, &i.channel.resource))
	}
	i.channel.ids.remove(address)
	i.channel = to
	return nil
}

// DeviceName is the device of the connection; "" before it is bound or resolved, and once it is closed.
func (i *ID) DeviceName() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return ""
	}
	return deviceName(i.id)
}

func deviceName(id *C.struct_abi_cm_id) string {
	if id.verbs == nil {
		return ""
	}
	return C.GoString(&id.verbs.device.name[0])
}

// Port is the port of the device, from 1; 0 before there is one.
func (i *ID) Port() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return 0
	}
	return int(i.id.port_num)
}

// Local is the address of this side, and Peer that of the other; the zero value before there is one.
func (i *ID) Local() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return netip.AddrPort{}
	}
	return (*sockaddr)(unsafe.Pointer(&i.id.src_storage)).addrPort()
}

// Peer is the address of the other side.
func (i *ID) Peer() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == nil {
		return netip.AddrPort{}
	}
	return (*sockaddr)(unsafe.Pointer(&i.id.dst_storage)).addrPort()
}

// Close ends the connection without a word and frees it, after its queue pair. Events that are on their way are lost.
func (i *ID) Close() error {
	return i.close(func() error {
		i.mu.Lock()
		defer i.mu.Unlock()
		address := uintptr(unsafe.Pointer(i.id))
		i.channel.ids.remove(address)
		if err := destroy("destroy_id", deviceName(i.id), C.SV_ID, unsafe.Pointer(i.id)); err != nil {
			i.channel.ids.add(address, i)
			return err
		}
		i.id = nil
		return nil
	})
}
