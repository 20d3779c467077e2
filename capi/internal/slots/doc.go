// Package slots names values by numbers that programs outside of Go can hold: slot,
// kind and generation. A number that was given back names nothing, and so does one
// of another kind or one that was made up.
//
// All methods may be called from any goroutine; Get takes no lock and does not allocate.
package slots
