// Package refit says what a measurement of resharding moves: a model, its two parallel layouts, and the elements that
// each process sends to each other one.
//
// # The model
//
// Its parameters are matrices of bfloat16. The layers have two dense matrices each. Where one of the layouts divides
// experts, they also have experts with a matrix each. Tensor parallel ranks divide every matrix along [Spec.Dim]. With
// [Spec.Moves] the parameters are short vectors, so that as many moves of [MoveBytes] bytes result.
//
// Package reshard plans what moves. A [Share] is what one process has of the model, with the moves that name it. The
// sources have the first ranks of the cluster, and the destinations those behind them.
//
// # Elements
//
// An element has a value that follows from its parameter, its place in the whole, and the version. So a destination
// knows each value without asking anybody. [Share.Fill] writes them, and [Share.Check] compares them.
//
// # Threads and memory
//
// Functions keep no state. One goroutine at a time may use a Share, whose memory belongs to the caller.
package refit
