package bench

import "github.com/stepvan/stepvan/bench/limit"

// Names of limits in reports.
const (
	limitOneWorker = "one worker"
	limitStages    = "ideal pipeline"
	limitProcess   = "bare processes"
	limitGo        = "go nodes"
)

// limits describes the limit of a measurement.
type limits struct{ o *Options }

func (o *Options) limit() limits { return limits{o} }

// spec describes the exchange without stepvan that moves the same bytes.
func (l limits) spec() limit.Spec {
	s := limit.Spec{Kind: l.kind(), Push: int64(l.o.Push), Pull: int64(l.o.Pull), Parties: 1 + l.servers(), Inside: l.o.inOneProcess()}
	if l.o.InPlace && s.Kind == limit.Memory {
		s.Push, s.Pull = 0, 0
	}
	return s
}

func (l limits) kind() limit.Kind {
	park := l.o.Progress == progressPark
	switch {
	case l.o.Van == Shm, l.o.Van == Mem:
		return limit.Memory
	case l.o.Van == Unix && park:
		return limit.UnixNetpoll
	case l.o.Van == Unix:
		return limit.UnixSocket
	case park:
		return limit.Netpoll
	}
	return limit.Socket
}

// servers is how many servers the limit's worker exchanges with.
func (l limits) servers() int {
	if l.o.Workload == Fanout {
		return l.o.Servers
	}
	return 1
}

// name is the name of the limit in reports; "" means that there is no limit.
func (l limits) name() string {
	if l.o.Nodes.Python() {
		return limitGo
	}
	switch l.o.Workload {
	case Batch:
		return ""
	case Incast:
		return limitOneWorker
	case AFD3:
		return limitStages
	case Start:
		return limitProcess
	}
	how := map[limit.Kind]string{
		limit.Socket: "socket", limit.UnixSocket: "unix socket", limit.Netpoll: "netpoll",
		limit.UnixNetpoll: "unix netpoll", limit.Memory: "copy and flag",
	}[l.kind()]
	switch {
	case l.o.InPlace && l.kind() == limit.Memory:
		return "flag"
	case l.kind() == limit.Memory:
		return how
	case l.o.Workload == Weights:
		return how + " stream"
	}
	return how + " ping-pong"
}

// bare reports whether the limit is an exchange of worker 0 and servers without stepvan.
// Otherwise the limit is another measurement, or the options have no limit.
func (l limits) bare() bool {
	return l.o.Workload != Incast && l.o.Workload != Batch && !l.o.Nodes.Python() && !l.o.baseline
}

// from is the limit in us when a bare exchange takes bare us.
func (l limits) from(bare float64) float64 {
	if l.o.Workload == AFD3 {
		return l.idealLayer(bare)
	}
	return bare
}

// idealLayer is the least time of a layer, in us, when an exchange takes exchangeUS. Either the
// micro-batches wait for the slowest stage, or a single one passes all stages.
func (l limits) idealLayer(exchangeUS float64) float64 {
	stage := float64(l.o.Compute.Nanoseconds()) / 1e3
	return max(float64(l.o.Inflight)*max(stage, exchangeUS), 2*stage+exchangeUS)
}
