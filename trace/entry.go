package trace

// Entry is what a node keeps of one request at one server. An entry of a worker has the worker's stamps and, where the
// request had an answer, those of the server. An entry of a server has only the server's stamps.
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
