// Package rdma carries messages over RDMA: InfiniBand, RoCE and iWARP, by reliable queue pairs that rdma_cm connects.
//
// Addresses are "host:port". The host chooses the device: a listener uses the one that has its address, and
// Dial the one on the way to the peer. Without cgo New answers that RDMA is not in this build.
//
// # Slots
//
// Each side posts receives, one for each slot of its ring, and promises them to the peer before the peer uses them. A
// message is a head (wire header and meta) and what travels with it, cut into as many slots as it needs (slot.go).
// Most need one. A payload without a target is copied to slots by the sender, and from there to the memory that the
// Placer names.
//
// Payload with targets is written into grants of the peer by the device, in front of the head: one chain and one
// doorbell. A large payload without a target, all of it in registered memory, stays where it is. Its message says
// where, and the receiver reads it into what its Placer names. It then says so in its next slot. Messages behind it
// wait, so the order stays.
//
// # Credit
//
// A side counts the slots that it has posted again, apart for messages and for records of the van itself. It tells the
// counts in everything that it sends. When there is nothing to send, it writes them to a word of the peer (8 bytes),
// once half of the ring is due. A peer that wants to sleep and waits for credit asks to be woken, with a record. Half
// of the slots for records are worth a record without being asked. So nobody needs to poll a word in order to wake, and
// a stream costs one small write for half a ring of messages.
//
// No message is sent without credit. So a receive is always there, queue pairs never repeat because of a receiver that
// is not ready, and a peer that sends more loses its connection.
//
// # Completions
//
// What was copied to a slot is complete when it is posted: Send says Done. What is fetched is complete when the peer
// says so. Requests are signaled where memory waits for their end, and one in every half send queue. Operations that
// find no credit wait in the endpoint, and Poll continues them.
//
// # Connections
//
// The private data of a connect request say which program and version asks (greeting.go). The answer has all that the
// dialling side must know of the listening one. The dialling side says the same of itself in its first message, as
// iWARP wants it. So a connection stands after one round trip of rdma_cm, and that message is its establishment: no
// event is waited for. An endpoint that has not said it within Options.PendingTime is closed. Accepted endpoints count
// against Options.Pending until they are settled (van.Settler).
//
// # Several rails
//
// A connection may have several queue pairs, its rails: PathOptions.Count between two ports, for each of
// PathOptions.Ports. The side that dials decides. Dial returns when the first one stands, and the others follow
// (connecting.go). The private data of each name the connection by a token that nobody guesses.
//
// The slots of messages have running numbers over all rails. The rails take turns, and the receiver takes the slots by
// their numbers. A payload with targets is cut over the rails from PathOptions.StripeBytes on. A slot follows each
// part, and the head comes last, so it is taken when all parts are there. A rail of which more than half of the slots
// wait for another rail copies them, since the missing one may need its credit.
//
// A sender keeps each slot in its buffer until credit says that the peer has it. A grant has a key for each device, so
// it serves all rails. A withdrawal goes over the rail that told of the grant. Its answer waits until no operation
// writes to the grant any more.
//
// A rail that fails is taken out (raillost.go). Each side destroys its queue pair, so nothing comes over it any more.
// Then it says over another rail how many messages and records have come. When a side has done so and has heard the
// other, it sends what is missing over other rails, with the writes in front of it. A payload that was being read is
// read again. A peer that does not say what it has within Options.PendingTime is lost. The last rail is the connection.
//
// The side that has dialled connects a lost path again, with another queue pair, once its port has been up for
// PathOptions.ReturnTime.
//
// Over iWARP a completed write was only sent, and windows belong to one queue pair. So both have one path.
//
// # Threads
//
// One goroutine of the van takes the events of rdma_cm: it accepts, and notices disconnections. One goroutine of the
// process takes the asynchronous events of a device, which all vans of the process share. Another goroutine runs while
// connections end, since the destruction of a queue pair may block. None belongs to a peer. Dial waits on an event
// channel of its own until the connection stands. Sending happens on the caller of Send, receiving on the caller of
// Poll.
//
// # The end
//
// A closed endpoint delivers nothing more. What it has posted still reaches the peer, and the peer may fetch what is on
// offer, for at most a second. What goes over a rail that fails meanwhile is lost: no other one takes it over any more.
// Then the queue pair is shut, drained and destroyed. The loss of a peer follows everything that had come. A receive
// that is posted completes in any case. So the number of those that are out says when nothing more can come.
//
// # Memory
//
// An endpoint pins its ring, the buffers of its sends and a page with the words of credit: 116 KiB by default. With
// several rails each of them pins 180 KiB.
package rdma
