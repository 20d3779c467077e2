// Package launch runs a whole cluster on this machine: one scheduler, workers,
// servers and peers. Each is a process, and the package leaves none of them behind.
//
// Run reserves a port for the scheduler, gives each child its environment, and prints
// the children's output line by line. It returns when the last process has ended. The
// first child that fails ends the run. Run then stops the others with SIGTERM, and after
// a grace with SIGKILL. The error names the child, how it ended and its last lines. A
// signal, or the end of the context, stops the run in the same way.
//
// # The scheduler's port
//
// Run binds a socket with SO_REUSEADDR to a free port, and keeps the socket without
// listening until the run ends. Linux then does not choose this port for a process that
// asks for any free one. It lets the scheduler listen there, because the scheduler asks
// for the port by number. So no other process can take the port by chance. The scheduler
// must set SO_REUSEADDR before it binds, as stepvan and the libraries of most languages do.
//
// # No process left behind
//
// Each child leads a session, and with it a process group. This process adopts the
// orphans of its children (PR_SET_CHILD_SUBREAPER, which stays set), and reaps them. A
// process of the run descends from this process. It is also in the session of a child, has
// the run's mark in its environment, or descends from a process of the run. So Run finds
// even a daemon that a child started with setsid.
//
// When something kills this process, the kernel kills the children (PR_SET_PDEATHSIG). The
// guard (Plan.Guard) then kills what the children have started. It is a process that waits for the
// end of a pipe which this process holds, and finds processes by session, mark and descent. It
// misses only a process that left its session, dropped its environment, and lost its parent.
//
// # Concurrency
//
// Several runs in one process do not touch each other's children, nor other children of the
// process. Run keeps its goroutine on one thread, because the kernel ties PR_SET_PDEATHSIG
// to the thread that starts a child.
//
// Only cmd/stepvan, bench and capi import the package.
package launch
