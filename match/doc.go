// Package match plans how tensors with names move between peers, whatever part of a tensor each of them has. It is for
// state dictionaries: a trainer sends its parameters, and inference receives those of equal names.
//
// # Steps
//
// Each peer describes its tensors: name, type, and the part that it has (package layout). The peers exchange these
// descriptions. Then each finds its own moves among them ([Find]). All peers see the same descriptions, so the two ends
// of a move agree without a further word.
//
//   - Each element of a tensor that is received comes from one sender. A peer that sends the tensor as well takes what
//     it has from itself. The receivers of a tensor begin with different senders, so they share the load of copies.
//   - A tensor that nobody receives stays where it is. One that is received and not sent as a whole is an error.
//   - Tensors of one name have one type and one shape at all peers.
//
// # Cost
//
// Tensors of equal layout at all peers share one search, and only their moves are made for each.
//
// # Concurrency and errors
//
// The functions keep no state, and any goroutine may call them. The error of descriptions that do not fit each other is
// [stepvan.ErrInvalid]. It names a tensor and the peers. Bytes that make no description are a [stepvan.ProtocolError].
package match
