package van

// Prober is implemented by vans that know without connecting whom they cannot reach.
type Prober interface {
	// Probe returns nil when a peer that has told addr, as its Listen returned it, seems to be within
	// reach, else why not, for people: "other machine". It is quick, may be called concurrently, and
	// promises nothing: Dial may fail all the same.
	Probe(addr string) error
}
