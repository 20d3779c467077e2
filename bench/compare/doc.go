// Package compare shows whether two series of measurements differ, and by how much.
//
// A measurement is a Report of package bench as one line of JSON. Each report is a run. The
// runs of one name (see bench.Report.Name) in a file form a sample, and the figure of a run is
// the median of its rounds. Rounds do not form a sample: the rounds of one run share
// processes, memory and the state of the machine. They differ less from each other than from
// those of a second run. A test on rounds would find differences where the program is the same.
//
// The centre of a sample is its median, with a 95% confidence interval from 6 runs on. The
// Mann-Whitney U test compares samples; it assumes nothing about their distribution. A
// difference is significant when its p is below 0.05, which takes 4 runs of each. With fewer
// runs the table shows the difference and says that it may be noise.
package compare
