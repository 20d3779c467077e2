// Package terminal finds out whether an output shows colours. It keeps no state,
// and all may be called concurrently.
package terminal
