// Package sparing limits how many log lines a flood of similar events writes, and spaces out the lines of a wait.
//
// Lines has no goroutine, Every has one. During a period it has a timer, which keeps the function that
// reports the number of omitted lines reachable. Lines.End stops the timer.
package sparing
