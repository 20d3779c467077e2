// Package pairtest runs workers and servers in one process, for tests. Each has a transport over the van that the test
// chooses. They are paired without a scheduler.
package pairtest
