// Package doctor finds what would go wrong when a node starts, before it starts.
//
// Run looks at the settings and at the machine and returns one Check for each
// thing looked at, in a fixed order; Print writes them for a person. Nothing is
// changed and nothing is left behind but the empty directory of the user's sockets:
// ports are opened and closed again, two nodes of its own connect for a moment, and the
// scheduler sees at most a connection that opens, says who it is, and closes. What the machine does
// not tell (a file that is not there, a limit that cannot be read) is no finding.
//
// Everything that is read from the system goes through System, so that each
// finding has a test. Run may be called concurrently.
package doctor
