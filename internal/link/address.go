package link

import (
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Addresses name the van: "tcp://10.0.0.7:4711", "unix:///run/x.sock" (tcpvan too), "mem://name".

// Scheme is the part of an address that names its transport: "shm", "tcp", "unix", "mem".
func Scheme(addr string) string {
	scheme, _, _ := strings.Cut(addr, "://")
	return scheme
}

// resolve finds the van of an address and the address in that van's notation.
func (n *Transport) resolve(addr string) (v *vanSlot, local string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return nil, "", errs.Invalid("address %q has no van: write tcp://host:port", text.Cut(addr))
	}
	name := scheme
	if scheme == "unix" {
		name, rest = "tcp", "unix:"+rest
	}
	for i := range n.vans {
		if n.vans[i].caps.Name == name {
			return &n.vans[i], rest, nil
		}
	}
	return nil, "", errs.Invalid("address %q needs the %s van, which this node does not have", text.Cut(addr), text.Cut(name))
}

// publish is resolve's reverse.
func (v *vanSlot) publish(local string) string {
	if path, ok := strings.CutPrefix(local, "unix:"); ok {
		return "unix://" + path
	}
	return v.caps.Name + "://" + local
}

// Listen accepts peers at the addresses and returns those that peers can dial.
func (n *Transport) Listen(addrs ...string) (bound []string, err error) {
	for _, a := range addrs {
		v, local, err := n.resolve(a)
		if err != nil {
			return bound, err
		}
		b, err := v.van.Listen(local)
		if err != nil {
			return bound, err
		}
		bound = append(bound, v.publish(b))
	}
	return bound, nil
}
