package bench

import (
	"time"

	"github.com/stepvan/stepvan/bench/limit"
	"github.com/stepvan/stepvan/internal/wire"
)

// Names of limits that are not an exchange of the same bytes alone.
const (
	limitOneWorker = "one worker"
	limitStages    = "ideal pipeline"
	limitProcess   = "bare processes"
	limitGo        = "go nodes"
	limitPicks     = "bare picks"
	limitCopies    = "bare copies"
	limitSockets   = "bare sockets"
	limitPlan      = "plan alone"
)

// limits describes the limit of a measurement.
type limits struct{ o *Options }

func (o *Options) limit() limits { return limits{o} }

// spec describes the exchange without stepvan that moves the same bytes.
func (l limits) spec() limit.Spec {
	s := limit.Spec{Kind: l.kind(), Push: int64(l.o.Push), Pull: int64(l.o.Pull), Parties: 1 + l.servers(), Inside: l.o.inOneProcess(), Work: l.o.Work}
	if l.o.Workload == Replay { // the learner asks, and the rows come back
		s.Push = int64(smallBytes)
		s.Rows = limit.Rows{Bytes: int64(l.o.Push), Buffer: int64(l.o.Push) * keptRows(l.o)}
	}
	if s.Kind == limit.Perftest {
		s.Head = rdmaHead
	}
	if l.o.InPlace && s.Kind == limit.Memory {
		if s.InPlace = l.o.Work.Any(); !s.InPlace {
			s.Push, s.Pull = 0, 0
		}
	}
	return s
}

// rdmaHead is what a request over RDMA has besides payload: the prefix of its slot, its header, and the descriptors of
// a push and a pull. An answer has a little less.
const rdmaHead = 32 + wire.HeaderSize + 2*48

func (l limits) kind() limit.Kind {
	park := l.o.Progress == progressPark || l.o.Workload == Refit // more processes than cores, so none may spin
	switch {
	case l.o.Van == Shm, l.o.Van == Mem:
		return limit.Memory
	case l.o.Van == RDMA:
		return limit.Perftest
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
	t, kind := l.o.traits(), l.kind()
	switch {
	case l.o.comparesWithGo():
		return limitGo
	case t.limit != "" || !t.bare:
		return t.limit
	case l.o.Cores.shared(), l.without(), l.within():
		return ""
	case l.o.Workload == Refit && kind == limit.Memory:
		return limitCopies
	case l.o.Workload == Refit:
		return limitSockets
	case l.o.Workload == Replay:
		return limitPicks
	case kind == limit.Memory && l.o.InPlace:
		return "flag"
	case kind == limit.Memory:
		return "copy and flag"
	case kind == limit.Perftest:
		return string(kind)
	case l.o.Workload == Weights:
		return string(kind) + " stream"
	}
	return string(kind) + " ping-pong"
}

// bare reports whether the limit is an exchange of worker 0 and servers without stepvan.
// Otherwise the limit is another measurement, or the options have no limit.
func (l limits) bare() bool {
	return l.o.traits().bare && !l.o.Nodes.Python() && !l.o.baseline && !l.o.Cores.shared() && !l.without() && !l.within()
}

// within reports whether messages stay within a process, where no exchange between processes is a limit.
func (l limits) within() bool { return l.o.Workload == Particles && !l.o.Processes.Apart }

// without reports whether perftest has nothing that compares: it neither computes nor writes to several servers.
func (l limits) without() bool {
	if l.o.Workload == Replay { // a batch that is there moves nothing, and several collectors are not an exchange of two
		return l.o.Inflight > 1 || l.o.Servers > 1
	}
	return l.o.Van == RDMA && (l.o.Work.Any() || l.o.Workload == Fanout || l.o.Workload == Barrier)
}

// from is the limit in us when a bare exchange takes bare us. For a layer of afd3, either the
// micro-batches wait for the slowest stage, or a single one passes all stages.
func (l limits) from(bare float64) float64 {
	if l.o.Workload != AFD3 {
		return bare
	}
	stage := inMicros(l.o.Compute)
	return max(float64(l.o.Inflight)*max(stage, bare), 2*stage+bare)
}

func inMicros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
