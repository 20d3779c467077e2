// Package page writes reports of package bench as one HTML page, which needs nothing
// else: it opens without a network, and can be mailed or kept as it is.
//
// It has the goals and what came of them, latency, rate and ratio by size for each
// sweep, the distribution of every other measurement, each against its limit, and a table of all.
//
// Apache ECharts 6.1.0 draws the charts in the browser. Its "common" build, unchanged and
// with its licences, is in the folder echarts and becomes part of the page.
package page
