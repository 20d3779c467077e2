// Package bench measures whole exchanges between nodes and, in the same run, the
// least that the machine itself needs for the same bytes.
//
// # What is run
//
// Run starts one scheduler and the wanted workers and servers: each a process, or
// with the mem van all in this one. Every worker keeps Inflight exchanges going: it
// pushes and waits for the pull. Two workloads differ in what a server answers:
//
//   - echo sends the pushed bytes back from where they were received
//   - afd sends a buffer of its own, as an FFN server of a split transformer does, and
//     waits for the pushes of all workers (lock-step)
//
// The bytes of the first exchanges are checked; then nothing but the exchange itself
// is timed. The workload start is about processes: start, one exchange, stop.
//
// # The limit
//
// Worker 0 and server 0 also exchange the same bytes over a socket of the same kind
// with nothing between: non-blocking send and recv in tight loops, no poller, no
// frames, and the bytes read into one buffer. In one process the limit is a copy each
// way and an atomic flag. Limit and measurement alternate in short rounds, because
// machines change their speed from one second to the next; Report.Ratio is the median
// over rounds of the quotient of the two medians. While one is measured, the
// nodes do nothing for the other: they wait for the next command.
//
// # Who does what
//
// The conductor (of Run) tells all nodes by a Unix socket what to do next, one command
// at a time, and collects their histograms. A server learns of the end of a round
// in band, by a request that each worker sends after its last exchange.
//
// # Threads and memory
//
// Run may be called from any goroutine, and several runs may go on at once, if to
// measure each other is what is wanted. Nodes allocate before the first round, and
// nothing in the rounds.
package bench
