// Package trace tells how long each part of a request takes.
//
// Every request has eight time stamps ([Stamps]). The worker that sent it takes four, and the server that answered it
// takes four. A node keeps the stamps of its latest requests in a [Ring], which has a fixed size. After a run a program
// can do two things with these entries:
//
//   - [WriteJSON] writes a file for chrome://tracing or Perfetto, with one track for each node. [Merge] joins the files
//     of several processes.
//   - [Summarize] computes percentiles for each label, for example for each layer of a model.
//
// # Clocks
//
// [Now] returns wall time that never steps back. The worker reads four stamps from its clock, and the server reads the
// other four from its own. The difference of two stamps means something only if both are of the same clock. So the
// methods of Stamps return only such differences. For the time on the network, [Stamps.Network] takes the time that the
// worker waited for the answer. From that it subtracts the time that the server took.
//
// Now computes the time from the processor's tick counter, and corrects it by the kernel's clock every 4 ms. Where the
// counter is not steady, Now reads the kernel's clock each time.
//
// # Budget of the hot path
//
// [Now] takes 10 ns, and makes three system calls every 4 ms. [Ring.Record] takes 20 ns, and waits only for other calls
// on the same Ring. Neither allocates.
package trace
