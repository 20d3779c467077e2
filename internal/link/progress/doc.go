// Package progress decides who moves a node's bytes.
//
// Each node has one Engine with one driver token. Whoever holds the token may
// call the methods of Source; nobody else does. Three parties take it:
//
//   - A waiter (Engine.Wait) that finds the token free polls by itself until what
//     it waits for has happened: no thread switch on the fast path. It spins, then
//     yields the core to other processes with sched_yield(2), then naps: it sleeps in the kernel
//     on the descriptors of the source, token in hand, so that the thread that is woken
//     is the one that returns. A long sleep is left to the driver. Where the source has no
//     descriptors it sleeps on a channel, for as long as it takes, and need not spin before.
//   - A waiter that finds the token taken, or has napped in vain, parks on a Go channel.
//     A waiter that ends hands the token to a parked one that has not driven yet.
//   - The background driver, one goroutine per engine, sits in Go's netpoller, so it costs no thread,
//     and is woken when something comes while nobody drives.
//
// # Between two waits
//
// The driver listens only when it has been told to: descriptors that would wake it for
// what a spinning waiter handles are taken out of its epoll set while somebody drives. Who ends a
// wait either settles (the source is armed, the driver listens), or just leaves. It settles
// when the program is likely to be away for long, since its last absences were, and when
// output is stuck: a program that computes between waits still overlaps transfer with its
// computation. In a tight loop of waits it leaves, and a wait costs no system call. A tick of
// one millisecond has the rest done, and what was held back sent, as soon as nobody has driven
// for the length of it.
//
// # Crowds
//
// Where goroutines of the process wait for a processor (many nodes in one process), a wait leaves driving to the
// driver if that listens already: it parks at once. Ticks are four times as long then.
//
// # Budgets
//
// How long a waiter spins and yields follows the mode (STEPVAN_PROGRESS), the cores there are, and what
// became of the waits before: where waits keep being interrupted, because more threads
// want to run than there are cores, waiters of the process sleep at once, and try spinning now
// and then.
//
// # Panics
//
// A panic below the driver or a wait is caught by the outermost frame, once per wait and once per driver. The
// state of the source is not known then: the engine fails, all waits end with the error that Options.Panicked
// gives, and nobody polls any more but Close's caller. Options.Panicked decides whether the panic goes on.
//
// Everything in Wait, WaitFor and Set is free of allocation.
package progress
