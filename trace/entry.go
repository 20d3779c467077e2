package trace

// Entry is what a node keeps of one request to one server. An entry of a worker has the worker's stamps. It also has
// the server's when the request had an answer. An entry of a server has only the server's stamps.
type Entry struct {
	Stamps    Stamps
	Label     string // groups requests in views and tables, for example "layer 3"
	RequestID uint64 // the worker's number of the request
	Key       uint64 // of the first tensor
	BytesOut  int64  // payload from the worker to the server
	BytesBack int64  // payload from the server to the worker
	Worker    int32  // the worker's rank
	Server    int32  // the server's rank
}
