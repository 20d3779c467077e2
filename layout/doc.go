// Package layout plans how tensors move between distributed layouts. It says which boxes of which rank's part make up
// the part of another rank. It is a library of pure functions: it does no I/O, starts no goroutines and keeps no state.
//
// # Parts
//
// A [Part] is what one rank has of a tensor. For each dimension it has a list of [Span]: ranges of the whole, each with
// its place in the part. The part is the product of these lists, so its size does not depend on the number of elements.
// There are three ways to describe the parts of all ranks:
//
//   - [Layout]: a [Mesh] and one [Placement] for each of its dimensions, as torch.distributed.tensor has them;
//   - [Partition]: the attributes that Megatron-core gives a parameter, and its groups of experts;
//   - [NewPart]: lists of spans in any order, one part at a time.
//
// # Plans
//
// A plan has three steps, and each is a value of its own:
//
//   - [Division]: how a tensor is cut, without saying which rank has which piece. [Layout.Divide] and
//     [Partition.Divide] make it.
//   - [Planner]: which boxes each part of one division needs from the parts of another. It merges the sorted lists of
//     each dimension once. Boxes that touch on both sides are one box.
//   - [Sources]: which rank has each part, for one destination. [Layout.Sources] is the rule MeshOrder of the tensor
//     bus, [DataGroups.Sources] the rule of resharding.
//
// [Planner.Assign] brings them together and appends to [Moves], in the order of the destination. Every element of the
// destination is in one move, or the result is an error that names what is missing. Parameters of equal shape and
// layout share all three values, and only their moves are made for each. [Holders] plans the same for parts that have
// no common layout, and [Moves.Overlap] compares two parts. [Routes] finds the boxes that several ranks need.
//
// A destination's moves depend on its own part and on the sources. So a destination that is added changes nothing for
// the others.
//
// # Rules that differ from the originals
//
// A source that is partial has the same elements at several ranks, which must be reduced. In torch and in Etha each
// member reduces all of them. Here each member reduces and sends its own share of the elements, so that nothing is
// reduced twice for targets of one copy. [Layout.Reduction] names the members.
// The shares are cut along the first dimension that the target cuts, so that a target has few sources.
//
// Megatron-core always reads from the first member when there is one data parallel group. Here the destinations take
// the members in turns there too. The bytes are the same.
//
// Megatron-core takes a destination for a holder when it is in the data parallel group of the source, even where it
// has another expert. Here a destination is read from only if it has the parameter.
//
// Megatron-core refuses lengths that do not divide by the least common multiple of both numbers of segments, and
// parameters that only one side divides while the other has a group. Here spans fall where they fall, and a side that
// replicates counts as one part. Uneven StridedShard is refused, since versions of torch differ on it. So is a
// partial target.
//
// # Descriptions for other ranks
//
// [Part.Append], [Layout.Append] and [Partition.Append] encode descriptions, and [ReadPart], [ReadLayout] and
// [ReadPartition] read them. The readers bound everything that they read, since a peer may send anything. With its
// name and type a parameter takes 60 to 150 bytes.
//
// # Cost
//
// Work and memory of a plan depend on the number of spans and moves. A move of a matrix takes 64 bytes. The benchmarks
// plan 50,000 parameters for 64 destinations.
//
// # Errors and concurrency
//
// Functions return [stepvan.ErrInvalid] when the arguments do not fit, and [stepvan.ProtocolError] for bytes that make
// no description. Any goroutine may call the functions and methods at any time. Moves are an exception: one goroutine
// at a time may use them.
package layout
