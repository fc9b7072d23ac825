// The console: asks the coordinator every two seconds while the page is looked at, and shows what it says.

import { chart } from "./charts.js";
import { bytes, clock, count, duration, fill, many, node, pill, prose } from "./nodes.js";
import { drawTree } from "./tree.js";

const EVERY_MS = 2000;
const PER_PAGE = 50;
const FEED_MAX = 80;
const KEPT_MAX = 500;
const SAMPLES_MAX = 720;
const TOKEN = "rootline-token";

const by = (id) => document.getElementById(id);
const seen = { started: null, number: 0, events: [], samples: [], overview: null, code: "", codes: new Map() };
const list = { search: "", state: "", offset: 0, said: "" };
const one = { name: "", version: null, tree: null };
const drawn = new Map();
let timer = 0;
let asking = false;
let again = false;
let answeredAt = 0;
let held = false;

class Refused extends Error {}

async function ask(what, values = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const url = `console/data/${what}?${new URLSearchParams(values)}`;
  const answer = await fetch(url, { headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(40000) });
  if (answer.status === 401 || answer.status === 403) throw new Refused((await answer.json()).error, { cause: answer.status });
  if (!answer.ok) throw new Error(`the coordinator answered ${answer.status}`);
  return answer.json();
}

async function look() {
  clearTimeout(timer);
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  again = false;
  try {
    await update();
    answeredAt = Date.now();
    by("ask-token").hidden = true;
    by("lake").hidden = one.name !== "";
    by("one").hidden = one.name === "";
  } catch (error) {
    if (error instanceof Refused) refuse(error);
    else state("bad", "no answer");
  }
  asking = false;
  sayWhen();
  if (!document.hidden) timer = setTimeout(look, again ? 0 : EVERY_MS);
}

async function update() {
  const newest = seen.samples.length ? seen.samples[seen.samples.length - 1].at_ms : 0;
  const overview = await ask("overview", { after: seen.number, since_ms: newest });
  if (overview.started_ms !== seen.started) {
    const before = seen.started;
    Object.assign(seen, { started: overview.started_ms, number: 0, events: [], samples: [] });
    if (before !== null) return update(); // another process answers: begin again
  }
  seen.overview = overview;
  seen.number = overview.number;
  seen.events = [...seen.events, ...overview.events].slice(-KEPT_MAX);
  seen.samples = [...seen.samples, ...overview.samples].slice(-SAMPLES_MAX);
  showState(overview);
  if (one.name) {
    await showOne();
    return;
  }
  showFindings(overview);
  showTiles(overview);
  showCharts();
  showFeed();
  await showRejections(overview);
  await showTables();
}

function refuse(error) {
  if (error.cause === 401) {
    const had = sessionStorage.getItem(TOKEN);
    sessionStorage.removeItem(TOKEN);
    by("token-said").textContent = had ? "This token is not one of those that are set." : "";
    const isNew = by("ask-token").hidden;
    by("ask-token").hidden = false;
    if (isNew) by("token").focus();
    state("warn", "token needed");
  } else {
    by("ask-token").hidden = true;
    by("lake").hidden = false;
    show("findings", [finding({ severity: "bad", title: "The console is closed here", what: error.message, do: "", table: "", code: "" })]);
    state("bad", "closed");
  }
  by("one").hidden = true;
  if (error.cause === 401) by("lake").hidden = true;
}

// Draws again only what changed, so that nothing flickers and no one loses a selection.
function show(id, children, mark = null) {
  if (mark !== null && drawn.get(id) === mark) return;
  drawn.set(id, mark);
  fill(by(id), ...children);
}

function state(severity, words) {
  const shown = by("state");
  if (shown.textContent === words && shown.className === `pill ${severity}`) return;
  shown.className = `pill ${severity}`;
  shown.textContent = words;
}

function sayWhen() {
  by("updated").textContent = answeredAt ? `answered ${duration(Date.now() - answeredAt)} ago` : "";
}

function showState(overview) {
  by("coordinator").textContent = overview.coordinator;
  const bad = overview.findings.filter((item) => item.severity === "bad").length;
  const warn = overview.findings.length - bad;
  if (bad) state("bad", many(bad, "problem"));
  else if (warn) state("warn", many(warn, "warning"));
  else state("ok", "all well");
  document.title = `${bad ? `(${bad}) ` : ""}${one.name ? `${one.name} · ` : ""}Rootline`;
}

function showFindings(overview) {
  const shown = overview.findings.length
    ? overview.findings
    : [{ severity: "ok", title: "Nothing is known to be wrong", what: "Every table that is known here takes intents, and no intent was rejected lately.", do: "", table: "", code: "" }];
  show("findings", shown.map(finding), JSON.stringify(shown));
}

function finding(item) {
  const actions = [];
  if (item.table) actions.push(node("button", { type: "button", click: () => open(item.table), "data-key": `open ${item.title}` }, "Open table"));
  if (item.code) actions.push(node("button", { type: "button", click: () => explain(item.code), "data-key": `why ${item.title}` }, "Explain"));
  return node(
    "li",
    { class: `finding ${item.severity}` },
    node("strong", {}, item.title),
    item.what ? node("p", {}, item.what) : null,
    item.do ? node("p", {}, node("b", {}, "Do: "), prose(item.do)) : null,
    actions.length ? node("div", { class: "actions" }, actions) : null,
  );
}

function tile(label, value, note, severity = "") {
  return node("div", { class: `tile ${severity}` }, node("div", { class: "label" }, label), node("div", { class: "value" }, value), node("div", { class: "note" }, note));
}

function showTiles(overview) {
  const bad = ["quarantined", "damaged", "parked", "unowned", "delayed"].reduce((sum, name) => sum + (overview.states[name] ?? 0), 0);
  const last = seen.samples[seen.samples.length - 1];
  const lag = last?.lag ?? null;
  const rate = perSecond();
  const recent = rate[rate.length - 1]?.value ?? null;
  const tiles = [
    tile("Tables", count(overview.tables), bad ? `${count(bad)} cannot go on` : "all take intents", bad ? "bad" : ""),
    tile("Lag", count(lag), lag === null ? "the log did not say" : "records not handed out"),
    tile("Oldest intent", last ? duration(last.oldest_s * 1000) : "–", "without a verdict", last && last.oldest_s > 60 ? "bad" : ""),
    tile("Decided", recent === null ? "–" : `${recent < 10 ? recent.toFixed(1) : Math.round(recent)} /s`, `${count(overview.verdicts)} since the start`),
    tile("Commits", count(overview.commits), "since the start"),
    tile("Rejections", count(overview.rejections), "since the start", overview.rejections ? "warn" : ""),
  ];
  show("tiles", tiles, JSON.stringify([overview.tables, bad, last, recent, overview.verdicts, overview.commits, overview.rejections]));
}

function perSecond() {
  return seen.samples.slice(1).map((sample, number) => {
    const before = seen.samples[number];
    const seconds = Math.max(0.001, (sample.at_ms - before.at_ms) / 1000);
    return { at: sample.at_ms, value: Math.max(0, sample.verdicts - before.verdicts) / seconds };
  });
}

function showCharts() {
  const width = Math.max(260, Math.floor((by("charts").clientWidth || 900) / 3) - 40);
  const last = seen.samples[seen.samples.length - 1];
  const mark = `${width} ${last?.at_ms} ${seen.samples.length}`;
  if (drawn.get("charts") === mark) return;
  const lag = seen.samples.map((sample) => ({ at: sample.at_ms, value: sample.lag }));
  const oldest = seen.samples.map((sample) => ({ at: sample.at_ms, value: sample.oldest_s * 1000 }));
  const figures = [
    chart("Lag, records", lag, count, width),
    chart("Oldest intent waits", oldest, duration, width),
    chart("Decided a second", perSecond(), (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} /s`, width),
  ];
  show("charts", figures, mark);
}

async function showTables() {
  const said = await ask("tables", { search: list.search, state: list.state, offset: list.offset, limit: PER_PAGE });
  if (said.offset && !said.tables.length) {
    list.offset = 0;
    again = true;
    return;
  }
  const total = seen.overview.tables;
  const chips = [["", `all ${count(total)}`], ...Object.entries(said.states).map(([name, tables]) => [name, `${name} ${count(tables)}`])];
  show("states", chips.map(([name, words]) => {
    const click = () => choose({ state: name, offset: 0 });
    return node("button", { type: "button", click, "aria-pressed": list.state === name ? "true" : "false", "data-key": `state ${name}` }, words);
  }), JSON.stringify([chips, list.state]));
  const now = seen.overview.now_ms;
  show("tables", said.tables.length ? said.tables.map((row) => tableRow(row, now)) : [
    node("tr", {}, node("td", { colspan: 7, class: "muted" }, list.search || list.state ? "No table matches." : "No tables are known yet.")),
  ]);
  by("matching").textContent = said.matching === total ? "the worst first" : `${count(said.matching)} of ${count(total)}`;
  const end = Math.min(said.matching, list.offset + PER_PAGE);
  by("page").textContent = said.matching ? `${list.offset + 1}–${end} of ${count(said.matching)}` : "";
  by("previous").disabled = list.offset === 0;
  by("next").disabled = end >= said.matching;
  by("looked").textContent = !seen.overview.whole_lake
    ? "only tables of this coordinator"
    : seen.overview.looked_at_ms === null ? "the lake is being looked at" : `lake looked at ${clock(seen.overview.looked_at_ms)}`;
}

function tableRow(row, now) {
  return node(
    "tr",
    {},
    node("td", {}, node("a", { class: "name", href: `#/table/${encodeURIComponent(row.name)}`, "data-key": `table ${row.name}` }, row.name),
      row.why ? node("div", { class: "why", title: row.why }, row.why) : null),
    node("td", {}, pill(row.severity, row.state)),
    node("td", { class: "number" }, row.head === null ? "–" : String(row.head)),
    node("td", { class: "number" }, count(row.lag)),
    node("td", { class: "number" }, row.oldest_ms === null ? "–" : duration(now - row.oldest_ms)),
    node("td", { class: "number" }, count(row.rows)),
    node("td", { class: "owner" }, row.owner ?? "none"),
  );
}

function showFeed() {
  if (held) return;
  const newest = seen.events.slice(-FEED_MAX).reverse();
  const items = newest.length ? newest.map(happened) : [node("li", {}, node("span"), node("span", { class: "muted" }, "Nothing yet: commits appear here as they are made."))];
  show("feed", items, `${seen.started} ${seen.number}`);
}

function happened(event) {
  const what = node("span", { class: "what" });
  const table = node("span", { class: "name" }, event.table);
  if (event.kind === "commit") {
    what.append("commit ", table, node("b", {}, ` v${event.version}`), node("span", { class: "says" }, ` ${many(event.intents, "intent")}${event.seconds === null ? "" : ` in ${duration(event.seconds * 1000)}`}`));
  } else if (event.kind === "verdicts") {
    const said = Object.entries(event.counts).map(([kind, number]) => `${count(number)} ${kind}`).join(", ");
    what.append("told ", table, node("span", { class: "says" }, ` ${said}${event.told_again ? ", again" : ""}`));
  } else {
    what.append("rejected ", table, " ", node("code", {}, event.code || "no code"), node("div", { class: "says" }, event.reason));
  }
  return node("li", { class: event.kind }, node("time", { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms)), what);
}

async function showRejections(overview) {
  const codes = overview.codes;
  if (!seen.code && codes.length) seen.code = codes[0].code;
  const now = overview.now_ms;
  by("rejections-said").textContent = codes.length ? `${count(overview.rejections)} since the start of this coordinator` : "none since the start of this coordinator";
  show("codes", codes.map((item) => {
    const click = () => explain(item.code);
    return node("li", {}, node("button", { type: "button", click, "aria-pressed": seen.code === item.code ? "true" : "false", "data-key": `code ${item.code}` },
      node("span", { class: "mono" }, item.code || "no code"), node("b", {}, count(item.count)),
      node("span", { class: "muted" }, `last ${duration(now - item.last_ms)} ago`)));
  }));
  if (!seen.code) {
    show("explained", [], "");
    return;
  }
  const told = await explanation(seen.code);
  const recent = seen.events.filter((event) => event.kind === "rejection" && event.code === seen.code).slice(-8).reverse();
  show("explained", [...explainedAs(told), reasons(recent)], JSON.stringify([seen.code, recent]));
}

async function explanation(code) {
  if (!seen.codes.has(code)) {
    try {
      seen.codes.set(code, await ask("code", { name: code }));
    } catch (error) {
      if (error instanceof Refused) throw error;
      seen.codes.set(code, null);
    }
  }
  return seen.codes.get(code);
}

function explainedAs(told) {
  if (told === null) return [node("p", { class: "muted" }, "There is no explanation of this code here: another version gave it.")];
  return [
    node("h3", { class: "mono" }, told.code),
    node("p", { class: "muted small" }, `${told.category}: ${told.says}`),
    node("dl", { class: "steps" },
      node("dt", {}, "Cause"), node("dd", {}, prose(told.cause)),
      node("dt", { class: "do" }, "Do"), node("dd", {}, prose(told.do)),
      node("dt", { class: "do-not" }, "Do not"), node("dd", {}, prose(told.do_not))),
    node("p", { class: "small" }, node("a", { href: `console/codes/${encodeURIComponent(told.code)}.md`, target: "_blank", rel: "noopener" }, `The page of ${told.code}`)),
  ];
}

function reasons(events) {
  if (!events.length) return node("p", { class: "muted" }, "None of them is kept here any more.");
  return node("ul", { class: "reasons" }, events.map((event) =>
    node("li", {},
      node("span", { class: "muted" }, `${clock(event.at_ms)} `), node("span", { class: "name" }, event.table), " ",
      node("code", {}, event.code || "no code"), node("div", {}, event.reason),
      node("div", { class: "muted small" }, `intent ${event.intent_id}${event.where ? ` · ${event.where[0]} partition ${event.where[1]} offset ${event.where[2]}` : ""}`))));
}

async function showOne() {
  const name = one.name;
  const said = await ask("table", one.version === null ? { name } : { name, known: one.version });
  if (one.name !== name) return;
  const row = said.row;
  by("one-title").textContent = name;
  show("one-state", row ? [pill(row.severity, row.state)] : [], JSON.stringify(row?.state));
  const code = row ? codeIn(row.why) : "";
  const why = row?.why ? [node("div", { class: `finding ${row.severity}` }, node("strong", {}, row.state), node("p", {}, row.why),
    code ? node("div", { class: "actions" }, node("button", { type: "button", click: () => explain(code) }, "Explain")) : null)] : [];
  show("one-why", row ? why : [node("p", { class: "muted" }, "No table of this name is known here.")], JSON.stringify([row?.why, row?.severity, row === null]));
  if (said.tree) {
    one.version = said.tree.version;
    one.tree = said.tree;
  }
  const tree = one.tree;
  const now = seen.overview.now_ms;
  const facts = [
    ["Version", row?.head ?? tree?.version ?? "–"], ["Rows", count(tree?.rows ?? row?.rows)], ["Deleted rows", count(tree?.deleted_rows)],
    ["Data files", count(tree?.data_files ?? row?.data_files)], ["Root", bytes(tree?.size_in_bytes ?? row?.root_bytes)],
    ["Leaves", tree ? `${count(tree.leaf_count)} · ${bytes(tree.leaf_bytes)}` : "–"],
    ["Live in leaves", tree ? (tree.entries ? `${((tree.live / tree.entries) * 100).toFixed(1)}%` : "–") : "–"],
    ["Last commit", row?.committed_ms ? `${duration(now - row.committed_ms)} ago` : "–"],
    ["Waiting", count(row?.lag)], ["Oldest waits", row?.oldest_ms ? duration(now - row.oldest_ms) : "–"], ["Owner", row?.owner ?? "none"],
  ];
  show("one-facts", facts.map(([label, value]) => node("div", {}, node("dt", {}, label), node("dd", {}, value))));
  const width = by("tree").clientWidth;
  if (tree) show("tree", [drawTree(tree, width)], `${name} ${tree.version} ${width}`);
  else show("tree", [node("p", { class: "muted" }, said.tree_missing)], said.tree_missing);
  by("tree-said").textContent = tree ? `version ${tree.version}, snapshot ${tree.snapshot_id}${said.tree_missing ? ` · ${said.tree_missing}` : ""}` : "";
  show("one-rejections", said.rejections.length ? [reasons(said.rejections)] : [node("p", { class: "muted" }, "None since the start of this coordinator.")], JSON.stringify(said.rejections));
}

function codeIn(text) {
  return (text.match(/[a-z]+(?:-[a-z]+)+/g) ?? []).find((word) => seen.overview.findings.some((item) => item.code === word)) ?? "";
}

function open(name) {
  location.hash = `#/table/${encodeURIComponent(name)}`;
}

function explain(code) {
  seen.code = code;
  if (one.name) location.hash = "#/";
  by("rejections-panel").scrollIntoView({ block: "start" });
  look();
}

function choose(change) {
  Object.assign(list, change);
  look();
}

function follow() {
  const found = /^#\/table\/(.+)$/.exec(location.hash);
  let name = "";
  try {
    name = found ? decodeURIComponent(found[1]) : "";
  } catch {
    name = "";
  }
  if (name !== one.name) {
    Object.assign(one, { name, version: null, tree: null });
    for (const id of ["one-state", "one-why", "one-facts", "tree", "one-rejections"]) show(id, []);
    by("one-title").textContent = name;
    by("tree-said").textContent = "";
    window.scrollTo(0, 0);
  }
  if (answeredAt && by("ask-token").hidden) {
    by("lake").hidden = name !== "";
    by("one").hidden = name === "";
    (name ? by("one-title") : by("content")).focus();
  }
  look();
}

by("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, by("token").value.trim());
  by("token").value = "";
  look();
});
by("search").addEventListener("input", () => choose({ search: by("search").value, offset: 0 }));
by("previous").addEventListener("click", () => choose({ offset: Math.max(0, list.offset - PER_PAGE) }));
by("next").addEventListener("click", () => choose({ offset: list.offset + PER_PAGE }));
by("hold").addEventListener("click", () => {
  held = !held;
  by("hold").setAttribute("aria-pressed", String(held));
  showFeed();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
window.addEventListener("hashchange", follow);
window.addEventListener("resize", () => look());
setInterval(sayWhen, 1000);
follow();
