// Package pairtest runs workers and servers in one process, for tests: nodes
// with their links over a chosen van, paired without a scheduler.
package pairtest
