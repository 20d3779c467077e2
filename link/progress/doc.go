// Package progress decides who moves a node's bytes.
//
// Each node has one Engine with one driver token. Whoever holds the token may
// call Source.Poll; nobody else does. Three parties take it:
//
//   - A waiter (Engine.Wait) that finds the token free polls by itself until what
//     it waits for has happened: no thread switch on the fast path. It spins, then
//     yields the core to other processes with sched_yield(2), then parks.
//   - A waiter that finds the token taken, or has spun in vain, parks on a Go channel.
//     A waiter that ends hands the token to a parked one that has not spun yet.
//   - The background driver, one goroutine per engine, takes over while nobody spins.
//     It parks in the kernel (through Go's netpoller, so it costs no thread) on the
//     descriptors of all vans together.
//
// The driver is not woken for what a spinning waiter handles: when it wakes and
// finds the token taken, it leaves the kernel's queue and sits on a bench. From
// there it looks every millisecond whether anybody still drives, and returns to
// the kernel when nobody does. A waiter that ends calls the driver from the
// bench only when the program is likely to be away for long (its last
// absence was), or when output is stuck, so that a tight loop of waits
// pays no wake-up, and a program that computes between waits
// still overlaps transfer with its computation.
//
// Everything in Wait, WaitFor and Set is free of allocation.
package progress
