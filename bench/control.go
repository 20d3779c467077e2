package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/ps"
)

// verb names what a node has to do.
type verb string

const (
	verbPrepare verb = "prepare" // allocate, register
	verbCheck   verb = "check"   // exchange and look at every byte
	verbMeasure verb = "measure" // exchange as fast as possible
	verbReport  verb = "report"  // workers (batch: servers): how long each exchange of the last measure or limit took
	verbOpen    verb = "open"    // servers of the limit: listen
	verbConnect verb = "connect" // worker 0: connect to them
	verbLimit   verb = "limit"   // both: the same bytes without stepvan
	verbFinish  verb = "finish"  // stop, leave
)

// command is one line from the coordinator to a node. The node answers each with one reply.
type command struct {
	Verb  verb         `json:"verb"`
	Spec  *Options     `json:"spec,omitempty"`  // of prepare
	Share *refit.Share `json:"share,omitempty"` // of prepare, resharding in Python
	Count int          `json:"count,omitempty"` // of check, measure, limit: exchanges per worker
	Addrs []string     `json:"addrs,omitempty"` // of connect
}

// hello is the first line of a node.
type hello struct {
	Role stepvan.Role `json:"role"`
	Rank int          `json:"rank"`
}

func (h hello) String() string { return fmt.Sprintf("%s %d", h.Role, h.Rank) }

// reply is the answer of a node: an error, or the result of the verb.
type reply struct {
	Error   string        `json:"error,omitempty"`
	Addr    string        `json:"addr,omitempty"`    // of open
	Counts  counts        `json:"counts,omitempty"`  // of report
	Ends    ends          `json:"ends,omitempty"`    // of report, refit
	Elapsed time.Duration `json:"elapsed,omitempty"` // of measure and limit
	Allocs  uint64        `json:"allocs,omitempty"`  // of measure, of a process of its own
	CPU     time.Duration `json:"cpu,omitempty"`     // of measure, of a process of its own
	Copy    time.Duration `json:"copy,omitempty"`    // of limit, worker only: of one copy of the bytes both ways

	Moved  int64 `json:"moved,omitempty"`  // of prepare, refit: bytes of the moves
	Memory int64 `json:"memory,omitempty"` // of prepare and check, refit: bytes of the process, shared ones in part
	Pairs  int   `json:"pairs,omitempty"`  // of prepare, refit: the processes at the other ends of the moves

	Sent ps.Traffic `json:"sent,omitzero"` // of measure, refit: to all other processes

	Computed time.Duration `json:"computed,omitempty"` // of measure, server beside a busy program: processor time of its work
}

// errConnLost means that the other end of a controlConn is gone.
var errConnLost = errors.New("the connection with the measuring process broke")

// controlConn is one end of the connection between coordinator and node. One goroutine at a time
// may use it.
type controlConn struct {
	net.Conn
	name string // of the node, after its hello
	in   *json.Decoder
	out  *json.Encoder
}

func newControlConn(c net.Conn) *controlConn {
	return &controlConn{Conn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}
}

func (c *controlConn) send(v any) error { return c.out.Encode(v) }

// receive reads one line into v. errConnLost means that the other side is gone.
func (c *controlConn) receive(v any) error {
	if err := c.in.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", errConnLost, err)
	}
	return nil
}

// receiveReply reads the reply of a node. The error may come from the node.
func (c *controlConn) receiveReply(r *reply) error {
	if err := c.receive(r); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if r.Error != "" {
		return fmt.Errorf("%s: %s", c.name, r.Error)
	}
	return nil
}
