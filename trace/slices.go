package trace

import (
	"fmt"
	"time"
)

// requestArgs are what a viewer shows of a request when it is selected.
type requestArgs struct {
	Request   string `json:"request"`
	Key       string `json:"key"`
	Worker    int32  `json:"worker"`
	Server    int32  `json:"server"`
	BytesOut  int64  `json:"bytes_out"`
	BytesBack int64  `json:"bytes_back"`
	Network   string `json:"network,omitempty"` // both ways together
	Note      string `json:"note,omitempty"`
}

const centred = "the server has a clock of its own: its part is drawn in the middle of the wait"

func argsOf(e *Entry) requestArgs {
	return requestArgs{
		Request: fmt.Sprintf("%#x", e.RequestID), Key: fmt.Sprintf("%#x", e.Key),
		Worker: e.Worker, Server: e.Server, BytesOut: e.BytesOut, BytesBack: e.BytesBack,
	}
}

func (e *Entry) title() string {
	if e.Label != "" {
		return e.Label
	}
	return fmt.Sprintf("key %#x", e.Key)
}

// span is the time that the entry takes in the view of its node, in ns of the
// node's clock. If the entry has the stamps of neither side, ok is false.
func (e *Entry) span() (begin, end int64, ok bool) {
	s := &e.Stamps
	switch {
	case s.HasWorker():
		return s[RequestStart], max(s[RequestStart], s[ResponseProcess]), true
	case s.HasServer():
		return s[RequestPostRecv], max(s[RequestPostRecv], s[ResponsePostSend]), true
	}
	return 0, 0, false
}

// track draws the slices of one thread. shift is added to the stamps.
type track struct {
	out      *encoder
	pid, tid int
	shift    int64
}

func (t *track) slice(name, category string, begin, end int64, args any) {
	length := micros(end - begin)
	t.out.event(&event{
		Name: name, Cat: category, Phase: phaseSlice, Start: micros(begin + t.shift), Len: &length,
		Pid: t.pid, Tid: t.tid, Args: args,
	})
}

// entry draws e, outer slices first.
func (t *track) entry(e *Entry) {
	if e.Stamps.HasWorker() {
		t.request(e)
		return
	}
	begin, end, _ := e.span()
	t.slice(e.title(), "serve", begin, end, argsOf(e))
	t.served(&e.Stamps, begin, end)
}

// request draws the worker's view. Stamps out of order (a transport that
// reports the end of sending late) are cut, so that slices always nest.
func (t *track) request(e *Entry) {
	s := &e.Stamps
	begin, end, _ := e.span()
	sent := min(max(s[RequestPostSend], begin), end)
	back := min(max(s[ResponsePostRecv], sent), end)
	args := argsOf(e)
	args.Network = s.Network().String()
	if s.HasServer() {
		args.Note = centred
	}
	t.slice(e.title(), "request", begin, end, args)
	t.slice("send", "part", begin, sent, nil)
	t.wait(s, sent, back)
	t.slice("back", "part", back, end, nil)
}

// wait draws the time between sending and the answer: network, server, network.
func (t *track) wait(s *Stamps, begin, end int64) {
	if !s.HasServer() {
		t.slice("network", "part", begin, end, nil)
		return
	}
	inside := min(max(s.Server(), 0), time.Duration(end-begin))
	from := begin + (end-begin-int64(inside))/2
	to := from + int64(inside)
	t.slice("network", "part", begin, from, nil)
	t.slice("server", "part", from, to, nil)
	t.served(s, from, to)
	t.slice("network", "part", to, end, nil)
}

// served draws the server's parts between begin and end.
func (t *track) served(s *Stamps, begin, end int64) {
	at := func(stamp int, after int64) int64 {
		return min(max(begin+s[stamp]-s[RequestPostRecv], after), end)
	}
	given := at(RequestProcess, begin)
	answered := at(ResponseStart, given)
	t.slice("queue", "serve", begin, given, nil)
	t.slice("compute", "serve", given, answered, nil)
	t.slice("respond", "serve", answered, end, nil)
}
