// Package compare tells whether two series of measurements differ, and by how much.
//
// A measurement is a Report of package bench as one line of JSON, and a run: those of the same name (see
// bench.Report.Name) in one file are one sample. The figure of a run is the median of its rounds. Rounds
// are not a sample themselves: those of one run share processes, memory and what the machine did
// meanwhile, so they differ less from each other than from those of a second run of the same
// program, and a test on them would find differences where there are none.
//
// The centre of a sample is its median, with a 95% confidence interval from 6 runs on. Samples are compared
// with the Mann-Whitney U test, which assumes nothing about their distribution; a difference is
// shown when its p is below 0.05. That takes 4 runs of each: of fewer the difference is shown as one
// that nothing is known of.
package compare
