//go:build cgo

package verbs

// #include <errno.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// Device is an open device. It is the one that rdma_cm connects with, so queue pairs of both kinds can be made on it.
// All devices of a process with one name share their asynchronous events: each goes to one reader.
type Device struct {
	resource
	library *Library
	name    string
	context *C.struct_abi_context
	held    **C.struct_abi_context // the list of librdmacm, which keeps the context
	events  int

	made lookup
}

// Open opens a device that Devices lists.
func (l *Library) Open(name string) (*Device, error) {
	d := &Device{library: l, name: name}
	err := l.objects.create("open", &d.resource, "device "+name, nil, func() error {
		var n C.int
		list, err := C.sv_contexts(&n)
		if list == nil {
			return call(opDevices, name, err)
		}
		var names []string
		for _, c := range unsafe.Slice(list, int(n)) {
			have := C.GoString(&c.device.name[0])
			names = append(names, have)
			if have != name {
				continue
			}
			d.context, d.held, d.events = c, list, int(c.async_fd)
			return result("open", name, C.sv_nonblocking(c.async_fd))
		}
		C.sv_free_contexts(list)
		return fmt.Errorf("%w: open: %s: no such device (have %s)", stepvan.ErrInvalid, name, strings.Join(names, ", "))
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Name is the name of the device: "mlx5_0".
func (d *Device) Name() string { return d.name }

// Close gives the device back.
func (d *Device) Close() error {
	return d.close(func() error {
		C.sv_free_contexts(d.held)
		return nil
	})
}

// Query reads the limits of the device.
func (d *Device) Query() (DeviceAttributes, error) {
	if err := d.open("query_device"); err != nil {
		return DeviceAttributes{}, err
	}
	var a C.struct_abi_device_attr
	if e := C.sv_query_device(d.context, &a); e != 0 {
		return DeviceAttributes{}, result("query_device", d.name, e)
	}
	const windows = C.ABI_DEVICE_MEM_WINDOW_TYPE_2A | C.ABI_DEVICE_MEM_WINDOW_TYPE_2B
	return DeviceAttributes{
		Firmware:             C.GoString(&a.fw_ver[0]),
		VendorID:             uint32(a.vendor_id),
		PartID:               uint32(a.vendor_part_id),
		Ports:                int(a.phys_port_cnt),
		QPs:                  int(a.max_qp),
		QPRequests:           int(a.max_qp_wr),
		Segments:             int(a.max_sge),
		ReadSegments:         int(a.max_sge_rd),
		CQs:                  int(a.max_cq),
		CQEntries:            int(a.max_cqe),
		MRs:                  int(a.max_mr),
		PDs:                  int(a.max_pd),
		Windows:              int(a.max_mw),
		MRBytes:              uint64(a.max_mr_size),
		PageSizes:            uint64(a.page_size_cap),
		ReadsIn:              int(a.max_qp_rd_atom),
		ReadsOut:             int(a.max_qp_init_rd_atom),
		WindowsOfType2:       a.device_cap_flags&windows != 0,
		OnlyBoundByQueuePair: a.device_cap_flags&windows == C.ABI_DEVICE_MEM_WINDOW_TYPE_2A,
		CompletionVectors:    int(d.context.num_comp_vectors),
	}, nil
}

// Port reads the attributes of a port. Ports count from 1.
func (d *Device) Port(port int) (PortAttributes, error) {
	if err := d.open("query_port"); err != nil {
		return PortAttributes{}, err
	}
	var a C.struct_abi_port_attr
	if e := C.sv_query_port(d.context, C.int(port), &a); e != 0 {
		return PortAttributes{}, result("query_port", d.name, e)
	}
	return PortAttributes{
		State:      PortState(a.state),
		PhysState:  int(a.phys_state),
		MTU:        mtuBytes(int(a.active_mtu)),
		MaxMTU:     mtuBytes(int(a.max_mtu)),
		LinkLayer:  LinkLayer(a.link_layer),
		GIDs:       int(a.gid_tbl_len),
		LID:        uint16(a.lid),
		MaxMessage: uint32(a.max_msg_sz),
		Width:      int(a.active_width),
		Speed:      int(a.active_speed),
	}, nil
}

// mtuBytes turns the code of an MTU into bytes: 256 for 1, twice as many for each more.
func mtuBytes(code int) int {
	if code < C.ABI_MTU_256 || code > C.ABI_MTU_4096 {
		return 0
	}
	return 128 << code
}

// mtuCode is the code of the largest MTU that is not above n bytes.
func mtuCode(n int) int {
	code := C.ABI_MTU_256
	for code < C.ABI_MTU_4096 && mtuBytes(code+1) <= n {
		code++
	}
	return code
}

// GID reads an entry of the GID table of a port. used is false where the entry is empty. The error is
// stepvan.ErrNotSupported where the library does not know the function. Then sysfs has the same.
func (d *Device) GID(port, index int) (entry GIDEntry, used bool, err error) {
	if err := d.open("query_gid"); err != nil {
		return GIDEntry{}, false, err
	}
	var e C.struct_abi_gid_entry
	switch errno := C.sv_query_gid(d.context, C.int(port), C.int(index), &e); errno {
	case 0:
	case C.ENODATA:
		return GIDEntry{}, false, nil
	default:
		return GIDEntry{}, false, result("query_gid", d.name, errno)
	}
	gid := *(*[16]byte)(unsafe.Pointer(&e.gid))
	return GIDEntry{GID: netip.AddrFrom16(gid), Type: GIDType(e.gid_type), Interface: int(e.ndev_ifindex)}, true, nil
}

// EventFD is readable while there are asynchronous events. It belongs to the device.
func (d *Device) EventFD() int { return d.events }

// Event reads the next asynchronous event. ok is false when no event waits.
func (d *Device) Event() (e Event, ok bool, err error) {
	if err := d.open("get_async_event"); err != nil {
		return Event{}, false, err
	}
	var a C.struct_abi_async_event
	switch errno := C.sv_async_event(d.context, &a); syscall.Errno(errno) {
	case 0:
	case syscall.EAGAIN:
		return Event{}, false, nil
	default:
		return Event{}, false, result("get_async_event", d.name, errno)
	}
	defer C.sv_ack_async_event(&a)
	e.Kind = EventKind(a.event_type)
	element := *(*uintptr)(unsafe.Pointer(&a.element))
	switch e.Kind {
	case EventCQError:
		e.CQ, _ = d.made.find(element).(*CQ)
	case EventQPFatal, EventQPRequest, EventQPAccess, EventEstablished, EventLastReceived:
		e.QP, _ = d.made.find(element).(*QP)
	default:
		e.Port = int(int32(element))
	}
	return e, true, nil
}

// PD is a protection domain: what is made in it may be used together.
type PD struct {
	resource
	device *Device
	pd     unsafe.Pointer
}

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	p := &PD{device: d}
	err := d.library.objects.create("alloc_pd", &p.resource, "protection domain of "+d.name, []*resource{&d.resource}, func() error {
		var err error
		if p.pd, err = C.sv_alloc_pd(d.context); p.pd == nil {
			return call("alloc_pd", d.name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Device is the device of the protection domain.
func (p *PD) Device() *Device { return p.device }

// Close destroys the protection domain, after all that was made in it.
func (p *PD) Close() error {
	return p.close(func() error { return destroy("dealloc_pd", p.device.name, C.SV_PD, p.pd) })
}
