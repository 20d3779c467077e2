// Names of axes' values, for axes and tooltips.
const three = v => +v.toPrecision(3);
const bySize = v => {
  const b = Math.round(2 ** v), u = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]].find(u => b >= u[0]);
  return three(b / u[0]) + " " + u[1];
};
const byTime = us => us >= 1e6 ? three(us / 1e6) + " s" : us >= 1e3 ? three(us / 1e3) + " ms" : us >= 1 ? three(us) + " µs" : three(us * 1e3) + " ns";
const byTimes = v => three(v) + " ×";
const byRate = v => three(v);
const byRarity = v => v <= 0 ? "0%" : +(100 * (1 - 10 ** -v)).toFixed(Math.max(0, Math.ceil(v) - 1)) + "%";
const escaped = s => s.replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const tip = (x, y) => points => {
  const rows = points.filter(p => p.value).map(p =>
    `<tr><td>${p.marker}${escaped(p.seriesName)}</td><td class="n">${y(p.value[1])}</td></tr>`);
  return points.length ? `<b>${x(points[0].value[0])}</b><table class="tip">${rows.join("")}</table>` : "";
};
const draw = (id, option) => {
  const c = echarts.init(document.getElementById(id), null, {renderer: "canvas"});
  c.setOption(option);
  addEventListener("resize", () => c.resize());
};
