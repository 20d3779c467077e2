// Package demo runs `stepvan demo`. It fetches the model, starts a scheduler, attention
// workers and FFN servers as processes, checks their results and reports.
//
// The programs of the processes are package examples/afd/demo. Nothing here keeps state
// between runs, and Run blocks until all processes have ended.
package demo
