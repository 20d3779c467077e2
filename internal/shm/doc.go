// Package shm is the one place that maps memory: files that live in memory
// only (memfd), which processes of one machine pass to each other as
// descriptors.
//
// A page that a mapping shows and the file does not have is a SIGBUS, which no
// Go program can catch. So every file is fully allocated when it is made, and
// sealed against shrinking, growing and further seals. This package maps a file
// of another process only after it has checked both.
//
// All functions may be called concurrently.
package shm
