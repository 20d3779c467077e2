// Package shm is the one place that maps memory: files that live in memory
// only (memfd), which processes of one machine pass to each other as
// descriptors.
//
// A page that a mapping shows and the file does not have is a SIGBUS, which no
// Go program can catch. So every file is fully allocated when it is made, and
// sealed against shrinking, growing and further seals; and a file that somebody
// else made is mapped only after these have been checked.
//
// All functions may be called concurrently.
package shm
