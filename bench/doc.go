// Package bench measures whole exchanges between nodes and, in the same run, the
// least time that the machine itself needs for the same bytes.
//
// # Measurements
//
// Run starts one scheduler, workers and servers. Each is a process, or all are in
// this one. Every worker keeps Inflight exchanges in flight: it pushes and waits
// for the pull. Workloads differ in nodes, in sizes, and in what a server answers:
//
//   - echo, incast, fanout and pairs send the pushed bytes back from where they arrived
//   - afd waits for the pushes of all workers (lock-step) and sends a buffer of its own,
//     as an FFN server of a split transformer does. In place it computes in the memory
//     of the worker where the van allows it
//   - afd3 is afd between computations on both sides, with several micro-batches in flight
//   - weights is a large push with a small answer
//   - batch times the server alone, on requests that have arrived
//   - barrier has no tensors; start is about processes: start, one exchange, stop
//   - idle exchanges nothing, and shows what the nodes cost the processor then
//   - p2p, put, refit, bus and replay are between nodes with the role peer
//
// The nodes check the bytes of the first exchanges. After that, only the exchange
// itself is timed.
//
// # Peers
//
// The nodes of p2p, put, refit, bus, replay and particles all have the role peer. The first ones by rank take the place
// of the workers, and those behind them that of the servers. In p2p a tensor goes back and forth. In put a peer writes
// into a window with a note, and the driver of the other peer answers the note.
//
// In particles a message goes to a hook of a particle and back. With Processes.Apart the particle lives at the other
// peer.
//
// In bus a registered tensor moves over the tensor bus. Its limit is a plan between the same peers that moves as many
// bytes, and Details.Above is the difference. The receiver times both. With Processes.Apart each agent serves a client
// in a process of its own, which the agent's process starts. The limit stays between the agents.
//
// A refit moves the weights of a model, which package refit describes, as a peer.Plan. A run lasts until the last
// destination has ended it. No process knows that alone, so each destination tells when its runs ended, by the clock of
// the machine. The limit over shared memory is processes that copy the same boxes out of mapped files. Those over
// sockets write and read as many bytes between the same pairs. The elements are checked before the first round and
// after the last one.
//
// In replay the first peer is a learner, and the others are collectors. The learner times how long it waits for a
// batch: from when it asks for it, or, with two in flight, once it is there. The limit moves as many bytes between two
// bare processes, which always use the same two buffers.
//
// # Programs that compute
//
// Options.Work says what the programs do besides exchanging: see package work. With
// work.Spec.Think the server computes before it answers. The limit does the same. The
// times of both are without the computing, so they show what waiting costs. Details.Waiting
// says what a waiting worker costs the processor. With work.Spec.Fresh both sides write
// what they send and read what they get. That is within the times, and the limit does it, too.
// With work.Spec.Sleep the server sleeps in place of computing.
//
// # Cores that others use as well
//
// With Cores.Busy this process computes on every core while the nodes exchange, and then for as
// long alone. Details.Lost is the share of its rate that it loses beside the nodes. A server also
// measures the processor time of its own computing, which does not count as lost.
//
// With Cores.Quota all processes of a cluster are in a control group, and the kernel stops them
// when they have used their share of a period. Details.Throttled has the kernel's counts. Each
// process enters the group before its program starts, since Go's runtime reads the quota then.
//
// Neither has a limit: bare processes that poll would take the cores, too.
//
// # The limit
//
// Worker 0 and server 0 (all servers of fanout) also exchange the same bytes without
// stepvan: see package limit. Machines change their speed from one second to the next,
// so limit and measurement alternate in short rounds. Report.Ratio is the median, over
// the rounds, of the quotient of the two medians. While one is measured, the nodes of the
// other wait for the next command. RunTogether lets several clusters take their rounds in turns.
//
// Incast is compared with the same for one worker, and nodes in Python with the same between
// nodes in Go. RunTogether adds these measurements where they are missing.
//
// # Nodes in Python
//
// Options.Nodes chooses workers and servers that are programs in Python: module
// stepvan._bench. They run the same commands as nodes in Go, except those of the limit.
//
// A peer is also another library that exchanges the same bytes between processes in Python.
// Its processes start and get commands in the same way, but they are not nodes of stepvan.
// They find each other by files next to the coordinator's socket.
//
// # Plans
//
// A Plan is groups of measurements; a Matrix makes one of lists. Goals are the figures
// that the project wants to reach. Package page makes a page of reports. Package compare
// compares two series of them.
//
// # Coordination
//
// The coordinator of each cluster sends its nodes one command at a time over a Unix socket,
// and collects their latencies. A server learns of the end of a round from the
// requests themselves: each worker sends one more after its last exchange.
//
// # Threads and memory
//
// Any goroutine may call Run. Several runs at the same time disturb each other's figures.
// Nodes allocate before the first round, and nothing in the rounds.
package bench
