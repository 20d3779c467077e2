package ps

import (
	"context"

	"github.com/stepvan/stepvan/postoffice"
)

// Entry is an entry of the [Board]. Its fields are Key, Value, Order and Owner. Order numbers the entries in the order
// in which the scheduler has made them. Owner is the node that has posted the entry. The program must not change Value.
type Entry = postoffice.Entry

// Board is where the nodes of a cluster post small entries: see [Node.Board].
type Board struct{ node *Node }

// Board returns the board of the cluster. Any node may post entries on it, the scheduler included. So programs that
// were started apart find each other. The scheduler keeps the board and decides the order of its entries. An entry
// lives until its node removes it, leaves or dies. A joint node posts as its worker.
func (n *Node) Board() Board { return Board{n} }

// Post puts an entry on the board, or replaces the value of an entry of this node. The key is printable text of at most
// 256 bytes, and the value has at most 4 KiB. A node may have 1,024 entries with 1 MiB of keys and values together.
// When several nodes post the same key, only the first of them succeeds, and the errors of the others name it.
//
// The errors are:
//   - [stepvan.ErrInvalid]: the key is not printable text, or the key or the value is too long;
//   - [stepvan.ErrRemote] in a [stepvan.OpError] whose Peer is the owner: the key belongs to another node;
//   - [stepvan.ErrRemote]: this node has too many entries, or the board is full;
//   - [stepvan.ErrPeerLost]: the cluster has lost the scheduler, or an instance that this node needs;
//   - [stepvan.ErrClosed]: the program has stopped the node;
//   - the error of ctx. The entry may be on the board all the same.
func (b Board) Post(ctx context.Context, key string, value []byte) error {
	return b.do(ctx, "post", func(ctx context.Context, on *postoffice.Board) error { return on.Post(ctx, key, value) })
}

// Remove takes an entry of this node off the board. It returns the errors of [Board.Post], and [stepvan.ErrRemote] also
// when there is no such entry.
func (b Board) Remove(ctx context.Context, key string) error {
	return b.do(ctx, "remove", func(ctx context.Context, on *postoffice.Board) error { return on.Remove(ctx, key) })
}

// RemoveValue is [Board.Remove] for an entry that still has a value. When this node has posted another one meanwhile,
// the entry stays, and the error is [stepvan.ErrRemote].
func (b Board) RemoveValue(ctx context.Context, key string, value []byte) error {
	return b.do(ctx, "remove", func(ctx context.Context, on *postoffice.Board) error { return on.RemoveValue(ctx, key, value) })
}

// Watch waits for entries. It calls until with all entries whose keys begin with prefix, in their order, and again when
// they have changed. It returns the entries for which until returns true. Each list is the board as it was at one
// moment. When until is nil, Watch returns the first list. A node may have 64 watches at a time.
//
// The goroutine of the caller runs until, which may block. It returns the errors of [Board.Post].
func (b Board) Watch(ctx context.Context, prefix string, until func([]Entry) bool) (entries []Entry, err error) {
	err = b.do(ctx, "watch", func(ctx context.Context, on *postoffice.Board) error {
		entries, err = on.Watch(ctx, prefix, until)
		return err
	})
	return entries, err
}

// do makes a call, which also ends when the node can work no more.
func (b Board) do(ctx context.Context, op string, call func(context.Context, *postoffice.Board) error) error {
	n := b.node
	if err := n.life.usable(op); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.life.failed, cancel)()
	err := call(ctx, n.members[0].cluster.Board())
	if err != nil && n.life.err() != nil {
		return n.life.failure(op)
	}
	return err
}
