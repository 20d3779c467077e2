// Names of axes' values, for axes and tooltips.
const three = v => +v.toPrecision(3);
const formats = {
  bySize: v => {
    const b = Math.round(2 ** v), u = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]].find(u => b >= u[0]);
    return three(b / u[0]) + " " + u[1];
  },
  byTime: us => us >= 1e6 ? three(us / 1e6) + " s" : us >= 1e3 ? three(us / 1e3) + " ms" : us >= 1 ? three(us) + " µs" : three(us * 1e3) + " ns",
  byDecade: v => formats.byTime(10 ** v),
  byTimes: v => three(v) + " ×",
  byRate: v => three(v),
  byRarity: v => v <= 0 ? "0%" : +(100 * (1 - 10 ** -v)).toFixed(Math.max(0, Math.ceil(v) - 1)) + "%",
};
const escaped = s => s.replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const tip = (x, y) => points => {
  const rows = points.filter(p => p.value).map(p =>
    `<tr><td>${p.marker}${escaped(p.seriesName)}</td><td class="n">${y(p.value[1])}</td></tr>`);
  return points.length ? `<b>${x(points[0].value[0])}</b><table class="tip">${rows.join("")}</table>` : "";
};
const gridLines = color => ({show: true, lineStyle: {color}});
const series = l => ({
  name: l.name, type: "line", data: l.points, animation: false,
  showSymbol: l.dash === "solid", symbol: "circle", symbolSize: 6,
  lineStyle: {color: l.colour, width: l.dash === "solid" ? 2.4 : 1.6, type: l.dash},
  itemStyle: {color: l.colour},
});
// A chart in the words of ECharts. Below it is room for the legend, five lines a row, and the name of the axis.
const option = c => {
  const x = formats[c.x.format], y = formats[c.y.format];
  return {
    animation: false,
    grid: {left: 12, right: 28, top: 36, bottom: 48 + 20 * Math.ceil(c.lines.length / 5), containLabel: true},
    legend: {show: true, bottom: 2, itemWidth: 28, selected: Object.fromEntries(c.lines.filter(l => l.hidden).map(l => [l.name, false]))},
    tooltip: {show: true, trigger: "axis", formatter: tip(x, y)},
    xAxis: [{
      type: "value", name: c.x.name, nameLocation: "middle", nameGap: 30,
      min: "dataMin", max: "dataMax", minInterval: c.x.step, maxInterval: c.x.step,
      axisLabel: {formatter: x, hideOverlap: true}, axisTick: {show: true}, splitLine: gridLines("#eef2f7"),
    }],
    yAxis: [{
      type: c.y.log ? "log" : "value", name: c.y.name, nameLocation: "end", nameGap: 14,
      axisLabel: {formatter: y}, splitLine: gridLines("#e2e8f0"),
    }],
    series: c.lines.map(series),
  };
};
const draw = (id, chart) => {
  const c = echarts.init(document.getElementById(id), null, {renderer: "canvas"});
  c.setOption(option(chart));
  addEventListener("resize", () => c.resize());
};
