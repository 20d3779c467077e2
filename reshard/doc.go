// Package reshard plans how the weights of a model move from one parallel layout to another: from trainers to engines,
// or from one checkpoint's layout to the next. It plans, and moves nothing itself.
//
// # Rosters
//
// Each rank writes a [Roster]: the parameters that it has, and those that it wants. A [Form] says which part of a
// parameter that is. It has the attributes and groups that Megatron-core gives a parameter, or a part of package
// layout, or neither for a rank with all of it. The two sides need not describe parameters in the same way.
//
// Parameters of two ranks belong together if their resolved names are equal. [Names] resolves the names of a rank whose
// pipeline counts layers from 0, and whose expert parallel group counts experts from 0.
//
// # Plans
//
// Ranks exchange their rosters, each makes the same [Planner] of all of them, and takes its own [Plan]. So no rank
// coordinates. A controller can do the same for all ranks, and send each its plan ([Plan.Append]). The bytes may as
// well go to a file.
//
// Package layout does the planning. A parameter with groups comes from the copy that layout.DataGroups chooses, and any
// other from whatever ranks have its elements. The planner computes the way of a parameter once for each destination
// and kind of parameter. So a plan for one rank costs little more than its own operations.
//
// The number of an operation has the rank of its destination in the upper half, and counts in the lower half. The same
// number is in the plans of both sides. A destination that is added changes no number of another.
//
// # What is refused
//
// [NewPlanner] holds both sides against each other: names, shapes, types, groups. The error names the parameter and
// what each side has. Every rank plans from the same rosters, so every rank gets the same error, and none waits for
// another. Types may differ for persistent buffers, and everywhere with [Options.Cast]. Then the parameter travels in
// the type of the source.
//
// A source may lack the matrix of the output if it shares that of the embedding. Names for that are Megatron-core's.
//
// # Batches
//
// With [Options.BatchBytes] the operations are in batches, to be finished one after the other. All operations of a
// parameter are in one batch. So buffers for what travels need no more memory than one batch.
//
// # Errors and concurrency
//
// Functions return [stepvan.ErrInvalid] when the arguments do not fit, and [stepvan.ProtocolError] for bytes that make
// no roster or plan. Any goroutine may call the functions and methods at any time.
package reshard
