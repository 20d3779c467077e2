package limit

import "net"

// Answerer answers one caller. One goroutine at a time.
type Answerer struct {
	spec   Spec
	listen net.Listener // until the caller connects; nil with Memory
	side   side
}

// Listen makes an answerer, and the address that its caller must know.
func Listen(s Spec) (*Answerer, string, error) {
	if err := s.check(); err != nil {
		return nil, "", err
	}
	switch s.Kind {
	case Perftest:
		addr, err := rdmaHost()
		return &Answerer{spec: s}, addr, err
	case Memory:
		m, addr, err := createMemory(&s)
		if err != nil {
			return nil, "", err
		}
		return &Answerer{spec: s, side: m}, addr, nil
	}
	l, err := net.Listen(s.network())
	if err != nil {
		return nil, "", err
	}
	return &Answerer{spec: s, listen: l}, l.Addr().String(), nil
}

// Run answers count exchanges. The first call waits for the caller.
func (a *Answerer) Run(count int) error {
	if a.spec.Kind == Perftest {
		return nil // the caller runs both sides
	}
	if err := a.accept(); err != nil {
		return err
	}
	defer a.spec.lock()()
	for ; count > 0; count-- {
		if err := a.side.receive(); err != nil {
			return err
		}
		if a.spec.Work.Any() {
			out, in := a.side.buffers()
			if err := a.spec.Work.Answer(in, out); err != nil {
				return err
			}
		}
		if err := a.side.send(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Answerer) accept() error {
	if a.side != nil {
		return nil
	}
	conn, err := a.listen.Accept()
	if err != nil {
		return err
	}
	a.listen.Close()
	one, err := newStream(conn, &a.spec, written(a.spec.Pull), written(a.spec.Push))
	if err == nil {
		a.side = a.spec.picking(one)
	}
	return err
}

// Close ends the connection, and the wait of a caller.
func (a *Answerer) Close() {
	if a.listen != nil {
		a.listen.Close()
	}
	if a.side != nil {
		a.side.close()
		a.side = nil
	}
}
