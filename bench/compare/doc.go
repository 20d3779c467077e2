// Package compare tells whether two series of measurements differ, and by how much.
//
// A measurement is a Report of package bench as one line of JSON. Those of the same name (see
// bench.Report.Name) in one file are one sample: the figures of all their rounds. Rounds of
// one run are less independent of each other than runs are: several runs, one after the other into
// one file, say more than one with many rounds.
//
// The centre of a sample is its median, with a 95% confidence interval. Samples are compared with the
// Mann-Whitney U test, which assumes nothing about their distribution; a difference is
// shown when its p is below 0.05.
package compare
