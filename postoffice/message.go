package postoffice

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// op says what a message of the control channel is; it travels in Header.Op.
type op uint8

// Operations. Values are part of the protocol.
const (
	opNone      op = 0
	opJoin      op = 1  // node: registers; joinBody
	opJoined    op = 2  // scheduler: registered, the cluster is not complete yet
	opRefused   op = 3  // scheduler: the peer is not, or no longer, a member; failure
	opWaiting   op = 4  // scheduler: which nodes something waits for; waitingBody
	opStart     op = 5  // scheduler: the role and rank of the instance, and the epoch; startBody
	opPeers     op = 6  // scheduler: a part of the node's list of peers; peersBody
	opReady     op = 7  // node: knows its peers
	opHeartbeat op = 8  // node: lives; the scheduler answers with the same
	opBarrier   op = 9  // node: enters a round, which Header.Request names in later messages; barrierKey
	opWithdraw  op = 10 // node: gave up waiting in the round; barrierKey
	opReleased  op = 11 // scheduler: the round is complete
	opBroken    op = 12 // scheduler: the round cannot become complete; failure
	opGone      op = 13 // scheduler: nodes left or died; goneBody
	opStop      op = 14 // node: has stopped working and waits for the others
	opStopped   op = 15 // scheduler: all that live have stopped
	opPost      op = 16 // node: asks for an entry of the board; postBody
	opRemove    op = 17 // node: asks to remove an entry; removeBody
	opPosted    op = 18 // scheduler: what the request asked for is done
	opNotPosted op = 19 // scheduler: what the request asked for cannot be done, or not any more; failure
	opWatch     op = 20 // node: waits for entries, and names the watch by Header.Request; watchBody
	opNext      op = 21 // node: has taken a piece of the watch, and waits for the next one
	opUnwatch   op = 22 // node: the watch has ended
	opBoard     op = 23 // scheduler: a piece of a watch; boardBody
)

// frame is one message of the control channel, encoded. body is shared by all
// nodes that get the same message and never changed.
type frame struct {
	op      op
	request uint64 // Header.Request
	body    []byte
}

// Setting is one setting on which all nodes must agree, as text.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type joinBody struct {
	Role      stepvan.Role `json:"role"`
	Rank      stepvan.Rank `json:"rank"`
	Instance  LocalRank    `json:"instance"`
	GroupSize int          `json:"group"`
	Host      string       `json:"host,omitempty"`
	PID       int          `json:"pid,omitempty"`
	Addresses []string     `json:"addresses,omitempty"`
	Shared    []Setting    `json:"shared,omitempty"`
}

type waitingBody struct {
	Text string `json:"text"`
}

type startBody struct {
	Self  Peer   `json:"self"`
	Epoch uint64 `json:"epoch"`
	Peers int    `json:"peers"` // how many the list has, all parts together
}

type peersBody struct {
	Nodes []Peer `json:"nodes"`
}

// barrierKey identifies a barrier: all its callers must name the same group, and count alike.
type barrierKey struct {
	Group     Group `json:"group"`
	Instances bool  `json:"instances"` // count instances, else nodes
}

type goneBody struct {
	Epoch uint64     `json:"epoch"` // after the last of Nodes
	Nodes []goneNode `json:"nodes"`
}

type goneNode struct {
	ID     wire.PeerID  `json:"id"`
	Role   stepvan.Role `json:"role"`
	Rank   stepvan.Rank `json:"rank"`
	Host   string       `json:"host,omitempty"`
	PID    int          `json:"pid,omitempty"`
	Left   bool         `json:"left,omitempty"` // on purpose
	Reason string       `json:"reason"`
}

// verb says how the instance has gone.
func (g goneNode) verb() string {
	if g.Left {
		return "left"
	}
	return "died"
}
