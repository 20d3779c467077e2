package bench

import "github.com/stepvan/stepvan/bench/limit"

// Names of limits in reports.
const (
	limitOneWorker = "one worker"
	limitStages    = "ideal pipeline"
	limitProcess   = "bare processes"
	limitGo        = "go nodes"
)

// limitSpec describes the exchange without stepvan that moves the same bytes.
func (o *Options) limitSpec() limit.Spec {
	s := limit.Spec{Kind: o.limitKind(), Push: int64(o.Push), Pull: int64(o.Pull), Parties: 1 + o.limitServers(), Inside: o.inOneProcess()}
	if o.InPlace && s.Kind == limit.Memory {
		s.Push, s.Pull = 0, 0
	}
	return s
}

func (o *Options) limitKind() limit.Kind {
	park := o.Progress == progressPark
	switch {
	case o.Van == Shm, o.Van == Mem:
		return limit.Memory
	case o.Van == Unix && park:
		return limit.UnixNetpoll
	case o.Van == Unix:
		return limit.UnixSocket
	case park:
		return limit.Netpoll
	}
	return limit.Socket
}

// limitServers is how many servers the limit's worker exchanges with.
func (o *Options) limitServers() int {
	if o.Workload == Fanout {
		return o.Servers
	}
	return 1
}

// limitName is the name of the limit in reports; "" means that there is no limit.
func (o *Options) limitName() string {
	if o.Nodes.Python() {
		return limitGo
	}
	switch o.Workload {
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
	}[o.limitKind()]
	switch {
	case o.InPlace && o.limitKind() == limit.Memory:
		return "flag"
	case o.limitKind() == limit.Memory:
		return how
	case o.Workload == Weights:
		return how + " stream"
	}
	return how + " ping-pong"
}
