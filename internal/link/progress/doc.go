// Package progress decides which goroutine moves the bytes of a transport.
//
// Each transport has one [Engine], and each engine has one token. Only the holder of the token calls the methods of
// [Source]. It is the driver of the transport at that moment. Three parties take the token:
//
//   - A waiter ([Engine.Wait]) that finds the token free drives by itself until its event has happened. The fast path
//     therefore has no thread switch. The waiter polls as long as its event is likely to come soon. Otherwise it
//     sleeps in the kernel on the descriptors of the source and keeps the token. The thread that the kernel wakes is
//     then the thread that returns. When no event is due, the waiter gives the token back and parks after a few
//     milliseconds, or a little later if most waits of its kind end by then. A source without descriptors lets the
//     waiter sleep on a channel without a limit and without spinning.
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
// It arms the source when the last absences of the program were long and something came during one of them, and when
// output is stuck. A program that computes between its waits then still overlaps transfer with its computation.
// Otherwise the waiter only gives the token back, so that a wait costs no system call. A tick does the rest. When
// nobody has driven for a millisecond, it arms the source and sends what was held back. Each tick takes a core for some
// 10 us. So while the program waits again and again, the time between two ticks grows from one to four milliseconds.
//
// # Many transports in one process
//
// The process is oversubscribed when goroutines wait for a processor. A wait then leaves driving to a
// background driver that already listens, and parks at once. Its ticks are four milliseconds apart then.
//
// # How long a waiter stays awake
//
// In the mode Auto a waiter spins for 30 us. What it does next depends on the lengths of the last 128 waits of its
// [Kind] (see history). While enough of them ended soon after the time that this wait has lasted, the waiter polls on.
// When they ended much later, it sleeps until shortly before that time, and then polls. The time of the wake-up takes
// into account how late sleeps ended before. When the history tells nothing, the waiter sleeps until its event.
//
// A waiter that polls for long calls sched_yield(2) every 10 us. That call returns at once while no other thread
// wants the core, whatever its process. When it does not, and the kernel has counted that another thread ran, the
// core is not free, and the waiter sleeps. After several such waits the waiters of the process sleep at once, and one
// in many tries again. A waiter sleeps as well when goroutines of its process wait for a processor. Where the process
// may use less than one and a half cores, no waiter polls for long. The same holds for some seconds after the
// processes of its control group have used up their quota together.
//
// While a waiter sleeps, Go's runtime does not learn of it, unless goroutines may wait for its processor. Otherwise
// the runtime would look for that processor every 20 us, with a thread that takes a core from the waiter or its peer.
//
// # Panics
//
// The outermost frame of a wait, of the background driver and of a tick catches a panic below it. The state of the
// source is unknown after a panic. The engine fails, all waits end with the error of Options.Panicked, and only the
// caller of Close polls the source from then on. Options.Panicked decides whether the panic continues.
//
// [Engine.Wait], [Engine.WaitFor] and [Engine.Set] do not allocate, except for the history of a kind.
package progress
