// Package progress decides which goroutine moves the bytes of a transport.
//
// Each transport has one [Engine], and each engine has one token. Only the holder of the token calls the methods of
// [Source]. It is the driver of the transport at that moment. Three parties take the token:
//
//   - A waiter ([Engine.Wait]) that finds the token free drives by itself until its event has happened. The fast path
//     therefore has no thread switch. The waiter spins first. Then it yields its core to other processes with
//     sched_yield(2). Then it sleeps in the kernel on the descriptors of the source and keeps the token. The thread
//     that the kernel wakes is then the thread that returns. After a few milliseconds it gives the token
//     back and parks. A source without descriptors lets the waiter sleep on a channel without a limit and without
//     spinning.
//   - A waiter that finds the token taken parks on a Go channel. So does a waiter that has slept in vain. A waiter
//     whose wait ends hands the token to a parked waiter that has not driven yet.
//   - The background driver is one goroutine per engine. It drives while no waiter does. It waits in Go's netpoller, so
//     it occupies no thread, and messages that arrive wake it.
//
// The tick of a timer takes it as well: see below.
//
// # Between two waits
//
// The background driver listens only when a holder of the token has told it to. While a waiter drives, the descriptors
// of the source are out of the epoll set of the background driver. Otherwise the kernel would wake the background
// driver for what the waiter handles. A waiter whose wait ends does one of two things. It arms the source and has the
// background driver listen, or it only gives the token back.
//
// It arms the source when the last absences of the program were long, and when output is stuck. A program that computes
// between its waits then still overlaps transfer with its computation. In a tight loop of waits it only gives the token
// back, so that a wait costs no system call. A tick of one millisecond does the rest. As soon as nobody has driven for
// that long, it arms the source and sends what was held back.
//
// # Many transports in one process
//
// The process is oversubscribed when goroutines wait for a processor. A wait then leaves driving to a
// background driver that already listens, and parks at once. Ticks are four times as long then.
//
// # Budgets
//
// The time that a waiter spins and yields depends on the mode (STEPVAN_PROGRESS), the number of cores, and the waits
// before. When more threads want to run than there are cores, the operating system keeps interrupting spinning waiters.
// The waiters of the process then sleep at once. One in many still tries to spin.
//
// # Panics
//
// The outermost frame of a wait, of the background driver and of a tick catches a panic below it. The state of the
// source is unknown after a panic. The engine fails, all waits end with the error of Options.Panicked, and only the
// caller of Close polls the source from then on. Options.Panicked decides whether the panic continues.
//
// [Engine.Wait], [Engine.WaitFor] and [Engine.Set] do not allocate.
package progress
