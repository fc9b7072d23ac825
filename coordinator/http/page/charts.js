// A line over the last hour, drawn for the width that it has. `null` is a gap.

import { clock, node, shape } from "./nodes.js";

const HEIGHT = 104;
const TOP = 14;
const BOTTOM = 18;

export function chart(title, points, said, width) {
  const known = points.filter((point) => point.value !== null);
  const newest = known.length ? said(known[known.length - 1].value) : "no answer yet";
  const most = Math.max(0, ...known.map((point) => point.value));
  const head = node("figcaption", {}, node("span", { class: "muted" }, title), node("strong", {}, newest));
  const label = `${title}: now ${newest}, at most ${said(most)} in the time shown`;
  const view = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  const floor = HEIGHT - BOTTOM;
  for (const y of [TOP, (TOP + floor) / 2, floor]) {
    view.append(shape("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y }));
  }
  if (points.length > 1) {
    const from = points[0].at;
    const span = Math.max(1, points[points.length - 1].at - from);
    const x = (at) => (((at - from) / span) * width).toFixed(1);
    const y = (value) => (floor - (value / (most || 1)) * (floor - TOP)).toFixed(1);
    for (const run of runs(points)) {
      const line = run.map((point) => `${x(point.at)} ${y(point.value)}`).join("L");
      view.append(shape("path", { class: "area", d: `M${x(run[0].at)} ${floor}L${line}L${x(run[run.length - 1].at)} ${floor}Z` }));
      view.append(shape("path", { class: "curve", d: `M${line}` }));
    }
    view.append(shape("text", { x: 0, y: HEIGHT - 4 }, clock(from)));
    view.append(shape("text", { x: width, y: HEIGHT - 4, "text-anchor": "end" }, clock(points[points.length - 1].at)));
    view.append(shape("text", { x: 0, y: TOP - 3 }, said(most)));
  }
  return node("figure", { class: "chart" }, head, view);
}

function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found[found.length - 1].push(point);
  }
  return found.filter((run) => run.length);
}
