package rdma

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
)

// resolveTime bounds the look-up of a name in Listen.
const resolveTime = 10 * time.Second

// backlog is how many peers the kernel keeps until the manager takes them.
const backlog = 128

// Listen implements van.Van. The returned address has the port that was taken, and the host as given. A caller that
// listens at all addresses must tell peers a host by which they reach this machine.
func (v *rdmaVan) Listen(text string) (bound string, err error) {
	a, err := parseAddress(text)
	if err == nil {
		a, err = v.manager.listen(a)
	}
	if err != nil {
		return "", &stepvan.OpError{Op: "listen at " + text, Van: vanName, Err: err}
	}
	return a.String(), nil
}

func (m *manager) listen(a address) (address, error) {
	v := m.v
	if v.ctx.Err() != nil {
		return a, stepvan.ErrClosed
	}
	ctx, cancel := context.WithTimeout(v.ctx, resolveTime)
	defer cancel()
	at, err := a.lookup(ctx)
	if err != nil {
		return a, err
	}
	if !v.members.beginCall() {
		return a, stepvan.ErrClosed
	}
	defer v.members.calls.Done()
	id, err := v.manager.channel.NewID()
	if err != nil {
		return a, err
	}
	if err = id.SetReuseAddress(); err == nil {
		err = id.Bind(at)
	}
	if err == nil {
		err = id.Listen(backlog)
	}
	if err == nil && id.DeviceName() != "" && v.deviceNamed(id.DeviceName()) == nil {
		err = fmt.Errorf("%v is an address of %s, which this van does not use: %w", at.Addr(), id.DeviceName(), stepvan.ErrNotSupported)
	}
	if err == nil {
		a.port = id.Local().Port()
		err = v.manager.addListener(id)
	}
	if err != nil {
		_ = id.Close()
	}
	return a, listenAdvice(err)
}

func (m *manager) addListener(id *verbs.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return stepvan.ErrClosed
	}
	m.listeners = append(m.listeners, id)
	return nil
}

// listenAdvice says what to do about an address that cannot be taken.
func listenAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: choose another port or stop the process that holds it", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%w: no RDMA device of this machine has that address (see rdma link)", err)
	}
	return err
}
