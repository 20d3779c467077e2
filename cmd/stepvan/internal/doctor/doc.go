// Package doctor finds what would go wrong when a node starts, before it starts.
//
// Run checks the settings and the machine, and returns one Check for each subject, in a fixed order. What a start
// refuses, Run asks the same functions of packages reach and affinity, so both say the same. Print writes the checks
// for a person.
//
// Run changes nothing, and leaves nothing behind except the empty directory of the user's sockets. It opens ports and
// closes them again, and connects two nodes of its own for a moment. The scheduler sees at most a connection that
// opens, sends its hello, and closes. A missing file, or a limit that cannot be read, is not a finding.
//
// Run reads the system only through System, so that each finding has a test. Any goroutine may call it.
package doctor
