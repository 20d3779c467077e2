// Package launch runs a whole cluster on this machine: one scheduler, workers and
// servers, each a process of its own, and leaves none of them behind.
//
// Run is all of it: it reserves a port for the scheduler, gives each child its
// environment, prints what the children write line by line, and returns when the
// last process has ended. The first child that fails ends the run: everybody else
// is stopped with SIGTERM, and with SIGKILL after a grace, and the error names the
// child, how it ended and its last words. A signal or the end of the context stop
// the run the same way.
//
// # The scheduler's port
//
// Run binds a socket with SO_REUSEADDR to a free port and keeps it, without
// listening, until the run is over. Linux gives a port that is held like this to
// nobody who asks for a free one, and lets the scheduler, which asks for it by
// number, listen on it. So there is no moment at which another process could take
// the port by chance. The scheduler must set SO_REUSEADDR before it binds: every
// stepvan program does, and so do the libraries of most languages.
//
// # Nobody left behind
//
// Each child leads a session, and with that a process group. This process adopts
// what the children leave orphaned (PR_SET_CHILD_SUBREAPER, which stays set), and
// reaps it. A process belongs to the run when it descends from this process, and
// is of a child's session, carries the run's mark in its environment, or descends
// from one that does; so a daemon that a child has started with setsid is found
// too. If this process is killed in a way that it cannot handle, the kernel kills
// the children (PR_SET_PDEATHSIG). What they have started is then killed by the guard
// (Plan.Guard), a process that waits for the end of a pipe which this process holds. It
// finds processes by session, mark and descent. Only a process that has left its
// session and dropped its environment, and whose parent has ended, escapes it.
//
// # Concurrency
//
// Several runs may go on in one process; they do not touch each other's children,
// nor those that the process starts by other means. Run keeps its goroutine on one
// thread, as the kernel ties PR_SET_PDEATHSIG to the thread that starts a child.
//
// The package stands beside cmd/stepvan, bench and the examples, and imports
// config; nothing below them may import it.
package launch
