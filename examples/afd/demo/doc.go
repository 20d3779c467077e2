// Package demo runs the split transformer as a person would see it: a scheduler,
// attention workers and FFN servers, each a process of its own, over the sentences that
// ship with the example, or, without a model, exchanges of Step-3's shapes.
//
// Run is the parent's side: it fetches the model, launches the processes and
// reports. Worker and Server are the programs of the processes; the command
// that calls them is in cmd/stepvan.
package demo
