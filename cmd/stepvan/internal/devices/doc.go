// Package devices shows the RDMA devices of a machine, for people and for tools, and what a node with the settings of
// the environment does with them. It keeps no state.
package devices
