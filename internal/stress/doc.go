// Package stress proves on every van what only many exchanges, many lives and real deaths
// can show. Peers that are killed, stopped or interrupted at any point corrupt nothing, and
// the others learn of it in time. Memory, descriptors, mappings, goroutines and threads do
// not grow. The next start cleans up after killed processes. One damaged frame between two
// nodes (see damage and relay) harms only these two, and every wait ends in time. That test
// prints its seeds, and -hurt.seed=N repeats the cluster of one seed.
//
// The package has only tests. They run nodes in processes of their own: the test binary
// executes itself with a job in its environment. It reads commands from standard input, and
// writes events to standard output, one JSON object per line. Times in events are of
// CLOCK_MONOTONIC, which all processes of a machine share.
//
// Both ends check the payload to the last byte (see book), also where sizes and addresses
// change with each exchange. The tests assert wall-clock limits only for one promise: the time
// from a death to the errors that name it.
//
// The tests have two forms: a short one for every day, and with -long the full counts,
// which take minutes.
package stress
