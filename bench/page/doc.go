// Package page writes reports of package bench as one HTML page. The page is complete: it
// opens without a network, and a person can mail or keep it.
//
// It shows the goals with their results, and latency, rate and ratio by size for each sweep.
// Where the servers compute, it shows what an exchange takes above that, by the time of
// computing. For every other measurement it shows the distribution against its limit. A
// table lists all.
//
// Apache ECharts 6.1.0 draws the charts in the browser. Its "common" build, unchanged and
// with its licences, is in the folder echarts and becomes part of the page.
package page
