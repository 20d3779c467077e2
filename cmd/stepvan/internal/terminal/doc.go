// Package terminal tells what the reader of an output can show. It keeps no state,
// and all may be called concurrently.
package terminal
