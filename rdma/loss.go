package rdma

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/internal/wire"
)

// lossOf has an error of the connection say that the peer is lost.
func lossOf(err error) error {
	if errors.Is(err, stepvan.ErrPeerLost) {
		return err
	}
	return fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err)
}

// sharesPort reports whether two queue pairs use the same port.
func (c *connection) sharesPort(o *connection) bool { return c.device == o.device && c.port == o.port }

// explain has an error of a connection say that its port is down, if it is.
func (c *connection) explain(err error) error {
	if a, e := c.device.device.Port(c.port); e != nil || a.State == verbs.PortActive {
		return err
	}
	return fmt.Errorf("%w: port %d of %s is down: check the cable, and the port of the switch", err, c.port, c.device.name())
}

// onDeviceEvent implements eventSink.
func (v *rdmaVan) onDeviceEvent(of *sharedDevice, ev verbs.Event) {
	for _, r := range v.members.all(func(r *rail) bool { return r.conn.device.sharedDevice == of }) {
		switch ev.Kind {
		case verbs.EventQPFatal, verbs.EventQPRequest, verbs.EventQPAccess:
			if ev.QP == r.conn.qp {
				r.fail("receive", lossOf(fmt.Errorf("%s: %v: the device has shut the queue pair (event %d)", of.name(), ev.QP.Number(), ev.Kind)))
			}
		case verbs.EventCQError:
			if ev.CQ == r.conn.queue.cq {
				r.conn.queue.failed.Store(true)
				r.fail("receive", lossOf(fmt.Errorf("%s: the completion queue has overflowed", of.name())))
			}
		case verbs.EventPortDown:
			if ev.Port == r.conn.port && r.e.rails.count(func(x *rail) bool { return x.usable() && !x.conn.sharesPort(r.conn) }) > 0 {
				r.fail("receive", lossOf(fmt.Errorf("%s: port %d is down: check the cable, and the port of the switch", of.name(), ev.Port)))
			}
		case verbs.EventDeviceFatal:
			r.fail("receive", lossOf(fmt.Errorf("%s: the device has failed: reset it, and look at the log of the kernel", of.name())))
		}
	}
}

func isVersion(err error) bool {
	var version *wire.VersionError
	return errors.As(err, &version)
}

func isProtocol(err error) bool {
	var broken *stepvan.ProtocolError
	return errors.As(err, &broken)
}
