package trace

// Entry is what is kept of one request at one server. A worker's entry has the
// worker's stamps and, where the request had an answer, the server's; a
// server's entry has the server's stamps only.
type Entry struct {
	Stamps    Stamps
	Label     string // groups requests in views and tables, for example "layer 3"; must outlive the Ring's use of it
	RequestID uint64
	Key       uint64 // of the first tensor
	BytesOut  int64  // payload from worker to server
	BytesBack int64  // payload from server to worker
	Worker    int32  // rank
	Server    int32  // rank
}
