// Package sparing bounds how many log lines a flood of like events makes.
//
// Lines has no goroutine. While a period runs it has a timer, which keeps what the function that says the
// number refers to; Lines.End stops it.
package sparing
