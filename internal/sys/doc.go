// Package sys makes the system calls that Go's packages lack, or that the data path makes in a way of its own.
//
// A raw call does not tell Go's scheduler, so a driver that spins never hands its processor over. None of the raw calls
// blocks. Every call that a signal interrupts is made again.
//
// All functions may be called concurrently. Descriptors belong to the caller, unless the comment says otherwise.
package sys
