// Package demo has the programs of the processes of a demonstration: attention workers
// and FFN servers over the sentences that ship with the example. Without a model they
// exchange tensors of Step-3's shapes.
//
// Each process calls Worker or Server once. `stepvan demo` starts the processes and
// collects the results of the workers.
package demo
