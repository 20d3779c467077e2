// Package trace tells where the time of a request goes.
//
// Every request has eight timestamps ([Stamps]): four of the worker that sent it and four of the server that answered
// it. A node keeps the last of them in a [Ring], a fixed piece of memory that any number of goroutines may write to. At
// the end of a run the entries become
//
//   - a file for chrome://tracing or Perfetto, with one track for each node ([WriteJSON]); [Merge] joins the files of
//     several processes;
//   - a table of percentiles for each label, for example each layer ([Summarize]).
//
// # Clocks
//
// [Now] is wall time that never steps back. The worker's four stamps are of the worker's clock, and the server's four
// are of the server's. So only the differences within one of these groups mean anything, and the methods of Stamps
// offer exactly those. The time on the network, both ways together, follows from them: the time that the worker saw
// less the time that the server accounts for.
//
// Now counts the ticks of the processor from anchors, which it takes from the kernel's clock every few ms. It reads the
// kernel's clock itself where the ticks are not steady.
//
// # Budget of the hot path
//
// Now takes 10 ns and Record 20 ns. Neither allocates or blocks, and only Now enters the kernel, for its anchors.
package trace
