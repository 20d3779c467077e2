// Package tcpvan carries messages over TCP and over Unix sockets.
//
// Addresses are "host:port" (IPv4, [IPv6] or a name; port 0 takes a free one),
// "unix:/path" and "unix:@name" (abstract, without a file). With Options.Local
// only Unix sockets and loopback addresses are taken.
//
// # Threads
//
// None of its own. Send writes on its caller's thread, Poll reads, accepts and
// continues what did not fit on its caller's. Dial blocks its caller.
// Sockets do not belong to Go's netpoller but to an epoll set of the van (FD),
// and every call on the data path is a raw, non-blocking system call: a
// spinning driver never hands its processor to the scheduler.
//
// # Waiting on FD
//
// Once Arm has returned true, everything that Poll would find makes FD readable: bytes, room to send, connections, the completion of a Send, a Release that
// lets a stalled endpoint go on, a Close. While the van is not armed, what Send
// completes by itself waits silently for the next Poll, which saves a spinning driver a
// system call for each message.
//
// # Stream
//
// A dialed connection opens with a preamble of 32 bytes (preamble.go), which tells
// the accepting side how many connections (rails) make up the endpoint. A
// stream that begins with a wire header instead is taken as a single rail.
// Then messages follow each other: header, meta, padding before a large payload
// (padding), payload. When there are several
// rails, payload of Options.RailThreshold bytes or more is cut into as
// many parts, the first of which follows the meta on rail 0, and the others
// go without any framing on rails 1, 2...
//
// # Silence
//
// A peer may say nothing for as long as it likes between messages. In the middle of one it may be silent for
// Options.Stall; then it is lost, since nothing tells it from one that has vanished, or whose bytes have gone astray.
//
// # Visitors
//
// Accepted connections count against Options.Pending until their endpoint is settled (van.Settler). When there are as many,
// the oldest makes room if it had half a second, and otherwise the listener accepts nothing for a while. A stream that
// begins with what no peer says becomes an endpoint without buffers, whose loss follows at once.
//
// # Memory
//
// Sending copies nothing: head and segments go to the kernel in one gathering
// call. Receiving reads head, meta and up to Options.SmallBytes of payload into a
// staging buffer of the endpoint, from which the payload is copied once; the
// rest of a larger payload is read straight into the segments that the Placer
// named. After Endpoint.Close returns nothing writes to those any more.
//
// # Budget
//
// In the steady state Send is one system call per message that the socket
// takes whole, which completes it (Message.Done) unless it is a large piece of something larger; receiving is one call for a small message and about two for a large
// one, and neither allocates. Endpoints that were active lately are read
// without asking epoll first.
package tcpvan
