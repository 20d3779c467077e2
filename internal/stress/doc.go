// Package stress proves what only many exchanges, many lives and real deaths can
// show, on every van: peers that are killed, stopped or interrupted at any
// point corrupt nothing and are reported in time; memory, descriptors, mappings,
// goroutines and threads do not grow, whatever is repeated; what killed
// processes leave behind is cleaned up. One damaged frame between two nodes (see damage and relay) harms
// nobody but these two, and all that waits ends in time: the test prints its seeds, and -hurt.seed=N replays the cluster of one.
//
// It is tests only. They run nodes in processes of their own: the test binary
// executes itself with a job in its environment, reads commands from standard
// input and writes events to standard output, a JSON object per line. Times in
// events are of CLOCK_MONOTONIC, which all processes of a machine share.
//
// Payload is checked to the last byte at both ends (see book). Wall-clock
// limits are asserted only where the limit is what is promised: the time from a
// death to the errors that name it.
//
// The tests have two forms: a short one for every day, and with -long the full
// counts, which take minutes.
package stress
