// Package bench measures whole exchanges between nodes and, in the same run, the
// least that the machine itself needs for the same bytes.
//
// # What is run
//
// Run starts one scheduler and the wanted workers and servers: each a process, or
// all in this one. Every worker keeps Inflight exchanges going: it pushes and waits
// for the pull. Workloads differ in nodes, in sizes, and in what a server answers:
//
//   - echo, incast, fanout send the pushed bytes back from where they were received
//   - afd sends a buffer of its own, as an FFN server of a split transformer does, and
//     waits for the pushes of all workers (lock-step); in place it computes in the
//     memory of the worker where the van lets it
//   - afd3 is afd between computations on both sides, with several micro-batches in flight
//   - weights is a large push with a small answer
//   - batch times the server alone, on requests that are there
//   - barrier has no tensors; start is about processes: start, one exchange, stop
//
// The bytes of the first exchanges are checked; then nothing but the exchange itself
// is timed.
//
// # The limit
//
// Worker 0 and server 0 (all servers of fanout) also exchange the same bytes with nothing
// between: see package limit. Limit and measurement alternate in short rounds, because
// machines change their speed from one second to the next; Report.Ratio is the median
// over rounds of the quotient of the two medians. While one is measured, the
// nodes do nothing for the other: they wait for the next command. RunTogether has several
// clusters take their rounds in turns.
//
// Incast and nodes in Python are compared with other measurements instead: the same with one worker, the same between
// nodes in Go. Those are added where they are not asked for, and take their rounds in turns.
//
// # Nodes in Python
//
// Options.Nodes chooses workers and servers that are programs in Python, over package stepvan: module stepvan._bench. They
// take the same commands as a nodeRunner does, but for those of the limit, and count their exchanges by duration.
//
// A peer is another library that exchanges the same bytes between two processes in Python, as they do. Its processes are
// started and commanded in the same way, but are no nodes: they find each other by files beside the socket of the coordinator.
//
// # Plans
//
// A Plan is groups of measurements; a Matrix makes one of lists. Goals are what the
// project wants to reach. Package page makes a page of reports, package compare a
// comparison of two series of them.
//
// # Who does what
//
// The coordinator (of each cluster) tells its nodes by a Unix socket what to do next, one command
// at a time, and collects their histograms. A server learns of the end of a round
// in band, by a request that each worker sends after its last exchange.
//
// # Threads and memory
//
// Run may be called from any goroutine, and several runs may go on at once, if to
// measure each other is what is wanted. Nodes allocate before the first round, and
// nothing in the rounds.
package bench
