// Package page writes reports of package bench as one HTML page, which needs nothing
// else: it opens without a network, and can be mailed or kept as it is.
//
// It has the goals and what came of them, latency, rate and ratio by size for each
// sweep, the distribution of every other measurement, each against its limit, and a table of all.
//
// The charts are made with go-echarts; what draws them in the browser, Apache ECharts 6.1.0 (its
// "common" build, unchanged, with its licences), is in the folder echarts and becomes part of the page.
package page
