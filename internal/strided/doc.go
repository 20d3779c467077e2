// Package strided copies between two rectangular views of memory that have the same shape and other strides.
//
// A [Walk] is a nest of loops over both views. Making one is the work of a plan: it joins dimensions that touch in both
// views, so the innermost step is as long a run of bytes as there is. Copying allocates nothing, and calls nothing for
// each element.
//
// There are three sorts of steps. Long runs are copied as memory. Short ones go in typed loops. Where one view is
// contiguous in another dimension than the other one, as in a transpose, the elements go in tiles. So each cache line
// of either side is used whole.
//
// [Overlaps], [Intersect] and [FirstIntersection] say whether elements of one view, of two, or of a list are in one
// place. They are exact for what programs have: parts of tensors, and views of them with other strides.
package strided
