//go:build cgo

package verbs

// #cgo noescape sv_post_send
// #cgo nocallback sv_post_send
// #cgo noescape sv_post_recv
// #cgo nocallback sv_post_recv
// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// QP is a queue pair of a reliable connection.
type QP struct {
	resource
	device *Device
	qp     *C.struct_sv_qp
	id     *ID // that made it; nil for one without rdma_cm
	number QPNumber
	caps   QPCaps

	mu    sync.Mutex // guards what follows, and the freeing of qp
	final Counters   // once it is closed
}

// NewQP makes a queue pair that is connected without rdma_cm: Init, ReadyToReceive, ReadyToSend.
func (p *PD) NewQP(o QPOptions) (*QP, error) { return p.newQP(nil, o) }

func (p *PD) newQP(id *ID, o QPOptions) (*QP, error) {
	if o.SendCQ == nil || o.ReceiveCQ == nil {
		return nil, fmt.Errorf("%w: create_qp: %s: no completion queue", stepvan.ErrInvalid, p.device.name)
	}
	for _, cq := range []*CQ{o.SendCQ, o.ReceiveCQ} {
		if cq.device.context != p.device.context {
			return nil, fmt.Errorf("%w: create_qp: the completion queue is of %s (want one of %s)", stepvan.ErrInvalid, cq.device.name, p.device.name)
		}
	}
	q := &QP{device: p.device, id: id}
	uses := []*resource{&p.resource, &o.SendCQ.resource, &o.ReceiveCQ.resource}
	if id != nil {
		uses = append(uses, &id.resource)
	}
	err := p.device.library.objects.create("create_qp", &q.resource, "queue pair of "+p.device.name, uses, func() error { return q.create(p, o) })
	if err != nil {
		return nil, err
	}
	q.rename(q.number.String() + " of " + p.device.name)
	p.device.made.add(q.address(), q)
	return q, nil
}

func (q *QP) create(p *PD, o QPOptions) error {
	attr := C.struct_abi_qp_init_attr{
		send_cq: unsafe.Pointer(o.SendCQ.cq),
		recv_cq: unsafe.Pointer(o.ReceiveCQ.cq),
		qp_type: C.ABI_QPT_RC,
		cap: C.struct_abi_qp_cap{
			max_send_wr:     C.uint32_t(o.SendRequests),
			max_recv_wr:     C.uint32_t(o.ReceiveRequests),
			max_send_sge:    C.uint32_t(o.SendSegments),
			max_recv_sge:    C.uint32_t(o.ReceiveSegments),
			max_inline_data: C.uint32_t(o.Inline),
		},
	}
	var id *C.struct_abi_cm_id
	if q.id != nil {
		id = q.id.id
		if id == nil || id.verbs != p.device.context {
			return fmt.Errorf("%w: create_qp: the protection domain is of %s (want one of %s)", stepvan.ErrInvalid, p.device.name, q.id.DeviceName())
		}
	}
	var err error
	if q.qp, err = C.sv_create_qp(p.pd, id, &attr); q.qp == nil {
		return call("create_qp", p.device.name, err)
	}
	q.number = QPNumber(q.qp.qp.qp_num)
	q.caps = caps(&q.qp.cap)
	return nil
}

func caps(c *C.struct_abi_qp_cap) QPCaps {
	return QPCaps{
		SendRequests:    int(c.max_send_wr),
		ReceiveRequests: int(c.max_recv_wr),
		SendSegments:    int(c.max_send_sge),
		ReceiveSegments: int(c.max_recv_sge),
		Inline:          int(c.max_inline_data),
	}
}

func (q *QP) address() uintptr { return uintptr(unsafe.Pointer(q.qp.qp)) }

// Number is the number of the queue pair on its device.
func (q *QP) Number() QPNumber { return q.number }

// Caps are the numbers that the queue pair has been given.
func (q *QP) Caps() QPCaps { return q.caps }

// PostSend posts the requests of a chain, in their order, with one doorbell. posted is how many of them were taken: all
// of them unless there is an error. The segments of what was posted belong to the device until a completion of that
// request or of a later one. Budget: one call of C, no allocation.
func (q *QP) PostSend(c *SendChain) (posted int, err error) {
	switch {
	case q.qp == nil:
		return 0, errQPClosed
	case c.n == 0:
		return 0, nil
	}
	posted, errno := split(C.sv_post_send(number(q.qp), number(c.head)))
	if errno != 0 {
		return posted, failed(opPostSend, q.device.name, errno)
	}
	return posted, nil
}

// PostReceive posts the requests of a chain for messages of the peer. Otherwise it is as PostSend.
func (q *QP) PostReceive(c *ReceiveChain) (posted int, err error) {
	switch {
	case q.qp == nil:
		return 0, errQPClosed
	case c.n == 0:
		return 0, nil
	}
	posted, errno := split(C.sv_post_recv(number(q.qp), number(c.head)))
	if errno != 0 {
		return posted, failed(opPostReceive, q.device.name, errno)
	}
	return posted, nil
}

// number is the address of an object of C as a number, which cgo does not look at.
func number[T any](object *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(object))) }

func split(result C.int64_t) (posted int, errno syscall.Errno) {
	return int(result >> 32), syscall.Errno(uint32(result))
}

// Counters reads what went through the queue pair. It may run beside everything.
func (q *QP) Counters() Counters {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.qp == nil {
		return q.final
	}
	c := &q.qp.counts
	load := func(n *C.uint64_t) uint64 { return atomic.LoadUint64((*uint64)(n)) }
	return Counters{
		Doorbells:        load(&c.doorbells),
		Requests:         load(&c.requests),
		Signaled:         load(&c.signaled),
		Reads:            load(&c.reads),
		Bytes:            load(&c.bytes),
		ReceiveDoorbells: load(&c.receive_doorbells),
		Receives:         load(&c.receives),
	}
}

// Init makes the queue pair ready for PostReceive. access is what the peer may do.
func (q *QP) Init(port int, access Access) error {
	a := C.struct_abi_qp_attr{qp_state: C.ABI_QPS_INIT, port_num: C.uint8_t(port), qp_access_flags: C.uint32_t(access)}
	return q.modify(&a, C.ABI_QP_STATE|C.ABI_QP_PKEY_INDEX|C.ABI_QP_PORT|C.ABI_QP_ACCESS_FLAGS)
}

// ReadyToReceive connects the receive side.
func (q *QP) ReadyToReceive(p Path) error {
	a := C.struct_abi_qp_attr{
		qp_state:           C.ABI_QPS_RTR,
		path_mtu:           C.int32_t(mtuCode(p.MTU)),
		dest_qp_num:        C.uint32_t(p.Remote),
		rq_psn:             C.uint32_t(p.FirstReceived),
		max_dest_rd_atomic: C.uint8_t(p.ReadsIn),
		min_rnr_timer:      C.uint8_t(p.NotReadyTimer),
	}
	a.ah_attr.port_num = C.uint8_t(p.Port)
	a.ah_attr.dlid = C.uint16_t(p.RemoteLID)
	a.ah_attr.sl = C.uint8_t(p.ServiceLevel)
	if p.RemoteGID.IsValid() {
		a.ah_attr.is_global = 1
		g := &a.ah_attr.grh
		*(*[16]byte)(unsafe.Pointer(&g.dgid)) = p.RemoteGID.As16()
		g.flow_label = C.uint32_t(p.FlowLabel)
		g.sgid_index = C.uint8_t(p.GIDIndex)
		g.hop_limit = C.uint8_t(p.HopLimit)
		g.traffic_class = C.uint8_t(p.TrafficClass)
	}
	return q.modify(&a, C.ABI_QP_STATE|C.ABI_QP_AV|C.ABI_QP_PATH_MTU|C.ABI_QP_DEST_QPN|C.ABI_QP_RQ_PSN|C.ABI_QP_MAX_DEST_RD_ATOMIC|C.ABI_QP_MIN_RNR_TIMER)
}

// ReadyToSend connects the send side, after ReadyToReceive.
func (q *QP) ReadyToSend(p Path) error {
	a := C.struct_abi_qp_attr{
		qp_state:      C.ABI_QPS_RTS,
		sq_psn:        C.uint32_t(p.FirstSent),
		max_rd_atomic: C.uint8_t(p.ReadsOut),
		timeout:       C.uint8_t(p.AckTimeout),
		retry_cnt:     C.uint8_t(p.Retries),
		rnr_retry:     C.uint8_t(p.NotReadyRetries),
	}
	return q.modify(&a, C.ABI_QP_STATE|C.ABI_QP_SQ_PSN|C.ABI_QP_MAX_QP_RD_ATOMIC|C.ABI_QP_TIMEOUT|C.ABI_QP_RETRY_CNT|C.ABI_QP_RNR_RETRY)
}

// Fail shuts the queue pair: all posted requests complete as StatusFlushed, and the peer writes no more.
func (q *QP) Fail() error {
	a := C.struct_abi_qp_attr{qp_state: C.ABI_QPS_ERR}
	return q.modify(&a, C.ABI_QP_STATE)
}

func (q *QP) modify(a *C.struct_abi_qp_attr, mask C.int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.qp == nil {
		return errQPClosed
	}
	return result("modify_qp", q.device.name, C.sv_modify_qp(q.qp, a, mask))
}

// Query asks the device for the state and the numbers of the queue pair.
func (q *QP) Query() (QPState, QPCaps, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.qp == nil {
		return QPReset, QPCaps{}, errQPClosed
	}
	var a C.struct_abi_qp_attr
	if e := C.sv_query_qp(q.qp, &a, C.ABI_QP_STATE|C.ABI_QP_CAP); e != 0 {
		return QPReset, QPCaps{}, result("query_qp", q.device.name, e)
	}
	return QPState(a.qp_state), caps(&a.cap), nil
}

// UseLAGPort sends through one port of a bond of mlx5 devices, counted from 1. The error is stepvan.ErrNotSupported for
// other devices.
func (q *QP) UseLAGPort(port int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.qp == nil {
		return errQPClosed
	}
	return result("modify_qp_lag_port", q.device.name, C.sv_lag_port(q.qp, C.uint8_t(port)))
}

// Close destroys the queue pair. What was posted does not complete any more. It may block for a while, so a driver
// leaves it to another goroutine.
func (q *QP) Close() error {
	return q.close(func() error {
		final := q.Counters()
		q.mu.Lock()
		defer q.mu.Unlock()
		address := q.address()
		q.device.made.remove(address)
		if e := C.sv_destroy_qp(q.qp); e != 0 {
			q.device.made.add(address, q)
			return result("destroy_qp", q.device.name, e)
		}
		q.qp, q.final = nil, final
		return nil
	})
}
