// Package tcpvan carries messages over TCP and over Unix sockets.
//
// Addresses are "host:port" (IPv4, [IPv6] or a name; port 0 takes a free one),
// "unix:/path" and "unix:@name" (abstract, without a file). With Options.Local
// the van takes only Unix sockets and loopback addresses.
//
// # Threads
//
// The van has no threads of its own. Send writes on its caller's thread. Poll reads, accepts and
// continues what did not fit, all on its caller's thread. Dial blocks its caller.
// Sockets belong to an epoll set of the van (FD), and not to Go's netpoller.
// Every call on the data path is a raw, non-blocking system call, so a
// spinning driver never hands its processor to the scheduler.
//
// # Waiting on FD
//
// Once Arm has returned true, everything that Poll would find makes FD readable. That is:
//
//   - bytes that have come,
//   - room to send,
//   - connections,
//   - the completion of a Send,
//   - a Release with which a stalled endpoint continues,
//   - a Close.
//
// While the van is not armed, what Send completes by itself waits silently for the next Poll.
// That saves a spinning driver a system call for each message.
//
// # Stream
//
// A dialed connection opens with a preamble of 32 bytes (preamble.go), which tells
// the accepting side how many connections (rails) make up the endpoint. A
// stream that begins with a wire header instead is a single rail.
// Then messages follow each other: header, meta, padding before a large payload
// (padding), payload. With several rails the van cuts payload of
// Options.RailThreshold bytes or more into one part for each rail. The first part
// follows the meta on rail 0. The others have no framing, and travel on rails 1, 2...
//
// # Silence
//
// A peer may say nothing for as long as it likes between messages. In the middle of one it may be silent for
// Options.Stall, and then it is lost. Nothing tells such a peer from one that has vanished, or whose bytes have gone
// astray.
//
// # Visitors
//
// Accepted connections count against Options.Pending until their endpoint is settled (van.Settler). At that number the
// oldest makes room if it had half a second. Otherwise the listener accepts nothing for a while. A stream that
// begins with what no peer says becomes an endpoint without buffers, whose loss follows at once.
//
// # Memory
//
// Sending copies nothing: head and segments go to the kernel in one gathering
// call. Receiving reads head, meta and up to Options.SmallBytes of payload into a
// staging buffer of the endpoint, and copies that payload once. A whole payload
// of at most Options.InMessage goes beside the meta (Delivery.Payload), others to
// the segments that the Placer named. Receiving reads the rest of a larger payload
// straight into those. After Endpoint.Close returns nothing writes to them any more.
//
// # Budget
//
// In the steady state Send is one system call per message that the socket
// takes whole. The call completes the message (Message.Done), unless it is a large
// piece of something larger. Receiving is one call for a small message and about two for a large
// one. Neither allocates. Poll reads the hot endpoints, which were active lately,
// without asking epoll first.
package tcpvan
