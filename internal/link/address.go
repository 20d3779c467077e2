package link

import "strings"

// Addresses name the van: "tcp://10.0.0.7:4711", "unix:///run/x.sock" (also of tcpvan), "mem://name".

// Scheme is the part of an address that names its transport: "shm", "tcp", "unix", "mem".
func Scheme(addr string) string {
	scheme, _, _ := strings.Cut(addr, "://")
	return scheme
}

// announced is the reverse of vanSet.resolve.
func (v *polledVan) announced(local string) string {
	if path, ok := strings.CutPrefix(local, "unix:"); ok {
		return "unix://" + path
	}
	return v.caps.Name + "://" + local
}

// Listen accepts peers at the addresses and returns those that peers can dial.
func (t *Transport) Listen(addrs ...string) (bound []string, err error) {
	for _, a := range addrs {
		v, local, err := t.vans.resolve(a)
		if err != nil {
			return bound, err
		}
		b, err := v.van.Listen(local)
		if err != nil {
			return bound, err
		}
		bound = append(bound, v.announced(b))
	}
	return bound, nil
}
