// Package trace tells where the time of a request goes.
//
// Every request carries eight timestamps (Stamps): four of the worker that
// issued it and four of the server that answered it. A node keeps the last of
// them in a Ring, a fixed piece of memory that any number of goroutines may write
// to. At the end of a run the entries become
//
//   - a file for chrome://tracing or Perfetto (WriteJSON; Merge puts the files
//     of several processes together), with one track per node;
//   - a table of percentiles per label, for example per layer (Summarize).
//
// Clocks: Now is wall time that never steps back. The worker's four stamps are
// of the worker's clock and the server's four are of the server's, so only the
// differences within one of these groups mean anything; the methods of Stamps
// offer exactly those. The time on the network, both ways together, follows
// from them: what the worker saw less what the server accounts for.
//
// Now counts the processor's ticks from anchors that it takes of the kernel's clock
// every few ms (counter), and reads that clock itself where the ticks are not steady.
//
// Budget of the hot path: Now is 10 ns, Record is 20 ns; neither allocates or
// blocks, and only Now enters the kernel, for its anchors.
package trace
