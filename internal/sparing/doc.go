// Package sparing limits how many log lines a flood of similar events writes.
//
// Lines has no goroutine. During a period it has a timer, which keeps the function that
// reports the number of omitted lines reachable. Lines.End stops the timer.
package sparing
