// Package numbers gives values numbers that programs outside of Go can hold. A number that was taken back names
// nothing. Nor does a number of another kind, or an invented one.
//
// Any goroutine may call all methods. Get takes no lock and does not allocate.
package numbers
