// The tree of one version: the root with its own rows, its leaves below, what is live and what is dead in each.

import { bytes, count, many, shape } from "./nodes.js";

const GAP = 14;
const PAD = 16;
const LEAF_HEIGHT = 110;
const DELETE_HEIGHT = 34;
const WORDS = { data: "data files", position_delete: "deletion vectors", equality_delete: "equality deletes" };

export function drawTree(tree, width) {
  const parts = [];
  const inner = Math.max(320, width);
  let bottom = drawRoot(tree, inner, parts);
  if (tree.leaves.length) bottom = drawLeaves(tree, inner, bottom, parts);
  const label =
    `Version ${tree.version}: the root has ${many(tree.groups.reduce((sum, group) => sum + group.files, 0), "row")} of its own and ` +
    `${many(tree.leaf_count, "leaf", "leaves")}, in which ${count(tree.live)} of ${many(tree.entries, "entry", "entries")} are live`;
  const size = { width: inner, height: bottom + 4, viewBox: `0 0 ${inner} ${bottom + 4}` };
  return shape("svg", { class: "tree", role: "img", "aria-label": label, ...size }, parts);
}

function drawRoot(tree, width, parts) {
  const inside = [
    text(PAD, 28, `root ${tree.version}`, "title"),
    text(PAD, 47, `${tree.operation} · ${bytes(tree.size_in_bytes)} in ${many(tree.blocks, "block")} · ${many(tree.data_files, "data file")} · ` +
      `${many(tree.rows, "row")}, ${count(tree.deleted_rows)} deleted`, "faint"),
  ];
  let top = 60;
  for (const group of tree.groups) {
    const change = (group.added ? ` · ${count(group.added)} added` : "") + (group.removed ? ` · ${count(group.removed)} removed` : "");
    const said = `${count(group.files)} ${WORDS[group.content] ?? group.content} in the root · ${many(group.rows, "row")} · ${bytes(group.size_in_bytes)}${change}`;
    inside.push(text(PAD, top + 12, said));
    const old = group.content === "data" ? "live" : "deletes";
    const total = Math.max(1, group.files + group.removed);
    inside.push(...bar(PAD, top + 19, width - 2 * PAD, [[old, group.files - group.added], ["added", group.added], ["removed", group.removed]], total));
    top += 42;
  }
  if (!tree.groups.length) {
    inside.push(text(PAD, top + 12, "no rows of its own: all entries are in leaves", "faint"));
    top += 24;
  }
  parts.push(box(1, 1, width - 2, top, 9), ...inside);
  return top + 1;
}

function drawLeaves(tree, width, rootBottom, parts) {
  const columns = Math.max(1, Math.min(tree.leaves.length, Math.floor((width + GAP) / (250 + GAP))));
  const cardWidth = Math.min(340, (width - 2 - (columns - 1) * GAP) / columns);
  const left = (column) => 1 + column * (cardWidth + GAP);
  const branch = rootBottom + 18;
  let top = rootBottom + 36;
  const centres = Array.from({ length: columns }, (_, column) => left(column) + cardWidth / 2);
  const trunk = (centres[0] + centres[columns - 1]) / 2;
  parts.push(line(`M${trunk} ${rootBottom}V${branch}M${centres[0]} ${branch}H${centres[columns - 1]}`));
  let bottom = top;
  for (let start = 0; start < tree.leaves.length; start += columns) {
    const shown = tree.leaves.slice(start, start + columns);
    let height = 0;
    shown.forEach((leaf, column) => {
      if (start === 0) parts.push(line(`M${centres[column]} ${branch}V${top}`));
      height = Math.max(height, drawLeaf(leaf, left(column), top, cardWidth, parts));
    });
    bottom = top + height;
    top = bottom + GAP;
  }
  if (tree.rest.leaves) {
    const said = `and ${many(tree.rest.leaves, "more leaf", "more leaves")}: ${count(tree.rest.live)} of ${many(tree.rest.entries, "entry", "entries")} live · ${bytes(tree.rest.size_in_bytes)}`;
    parts.push(text(PAD, bottom + 24, said, "faint"));
    bottom += 30;
  }
  return bottom;
}

function drawLeaf(leaf, left, top, width, parts) {
  const data = leaf.content === "data_manifest";
  const height = LEAF_HEIGHT + (leaf.deletes.length + (leaf.more_deletes ? 1 : 0)) * DELETE_HEIGHT;
  const vector = leaf.vector === "none" ? "nothing dead, no vector" : `${count(leaf.dead)} dead, by a vector ${leaf.vector === "inline" ? "in the root" : "in a file"}`;
  const group = shape("g", {}, shape("title", {}, leaf.location), box(left, top, width, height, 7));
  group.append(
    text(left + 12, top + 20, `${data ? "data leaf" : "delete leaf"} ${shortName(leaf.location)}`, "mono"),
    text(left + 12, top + 38, `${many(leaf.rows, "row")} · ${bytes(leaf.size_in_bytes)}`),
    text(left + 12, top + 56, `${share(leaf)} live: ${count(leaf.live)} of ${many(leaf.entries, "entry", "entries")}`, "faint"),
    text(left + 12, top + 73, vector, "faint"),
    ...liveBar(leaf, left + 12, top + 84, width - 24, data ? "live" : "deletes"),
  );
  leaf.deletes.forEach((child, number) => {
    const at = top + LEAF_HEIGHT + number * DELETE_HEIGHT;
    group.append(text(left + 12, at + 8, `deletes ${shortName(child.location)} · ${count(child.live)} of ${count(child.entries)} · ${bytes(child.size_in_bytes)}`, "faint"));
    group.append(...liveBar(child, left + 12, at + 14, width - 24, "deletes"));
  });
  if (leaf.more_deletes) group.append(text(left + 12, top + height - 12, `and ${many(leaf.more_deletes, "more delete leaf", "more delete leaves")}`, "faint"));
  parts.push(group);
  return height;
}

function liveBar(leaf, left, top, width, style) {
  return bar(left, top, width, [[style, leaf.live], ["dead", leaf.dead - leaf.newly_dead], ["removed", leaf.newly_dead]], Math.max(1, leaf.entries));
}

function bar(left, top, width, pieces, total) {
  const drawn = [];
  let at = left;
  for (const [style, part] of pieces) {
    if (part <= 0) continue;
    const length = Math.min(left + width - at, Math.max(3, (part / total) * width));
    if (length > 0) drawn.push(shape("rect", { class: style, x: at.toFixed(1), y: top, width: length.toFixed(1), height: 11, rx: 2 }));
    at += length;
  }
  return drawn;
}

function share(leaf) {
  if (!leaf.entries) return "0%";
  const percent = (leaf.live / leaf.entries) * 100;
  return percent === 100 || percent === 0 ? `${percent}%` : `${Math.min(99.9, Math.max(0.1, percent)).toFixed(1)}%`;
}

function shortName(location) {
  return location.split("/").pop().slice(0, 8); // as `rootline tree` says it
}

function text(x, y, words, style = null) {
  return shape("text", { x, y, class: style }, words);
}

function box(x, y, width, height, radius) {
  return shape("rect", { class: "card", x, y, width, height, rx: radius });
}

function line(path) {
  return shape("path", { class: "link", d: path });
}
