// Draws what a table of the page says: a criterion's error against λ.
"use strict";

const EDGE = 1.3;

function draw(box) {
  const rows = [...document.querySelectorAll(`#${box.dataset.chart} tbody tr`)];
  const number = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));
  const points = rows.map((row) => [...row.children].map(number)).sort((a, b) => a[0] - b[0]);
  const error = `${box.dataset.criterion} error`;
  const chosen = Number(box.dataset.chosen);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const figure = (value) => (value === null || value === undefined ? "–" : value.toPrecision(4).replace(/\.?0+($|e)/, "$1"));
  const decade = (value) => value > 0 && Number.isInteger(Math.round(1e6 * Math.log10(value)) / 1e6);
  const power = (value) => (value >= 1e-4 && value < 1e6 ? value.toLocaleString("en", { maximumSignificantDigits: 1 }) : value.toExponential(0));
  const decades = (axis) => {
    const filter = (_, splits) => splits.map((split) => (decade(split) ? split : null));
    return { ...axis, grid: { ...axis.grid, filter }, ticks: { ...axis.ticks, filter } };
  };
  const axis = (label, size) => ({
    label,
    size,
    labelSize: 22,
    stroke: colour("--soft"),
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
    grid: { stroke: colour("--rule"), width: 1 },
    ticks: { stroke: colour("--rule"), width: 1 },
  });
  box.replaceChildren();
  new uPlot(
    {
      width: box.clientWidth,
      height: 280,
      legend: { show: false },
      scales: { x: { time: false, distr: 3, range: (_, low, high) => [low / EDGE, high * EDGE] } }, // not to whole decades, which may be empty
      series: [
        { label: "λ", value: (_, value) => figure(value) },
        { label: error, value: (_, value) => figure(value), stroke: colour("--accent"), width: 2, points: { size: 5 } },
        { label: "chosen", value: (_, value) => figure(value), stroke: colour("--warn"), paths: () => null, points: { show: true, size: 13, width: 2.5, fill: "transparent" } },
      ],
      axes: [
        { ...decades(axis("λ", 34)), values: (_, splits) => splits.map((split) => (decade(split) ? power(split) : "")) },
        { ...axis(error, 64), values: (_, splits) => splits.map(figure) },
      ],
    },
    [points.map((p) => p[0]), points.map((p) => p[1]), points.map((p) => (p[0] === chosen ? p[1] : null))],
    box,
  );
}

for (const box of document.querySelectorAll("[data-chart]")) {
  box.hidden = false;
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      draw(box);
    }
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(box));
}
