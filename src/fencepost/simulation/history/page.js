"use strict";
// Draws the part of a history that is in sight.  What there is to draw is in the element "data"; see page.py.

const data = JSON.parse(document.getElementById("data").textContent);
const ROW = 18, TOP = 26, TIMES = 84, BLOCK = 64, AROUND = 12;
const [byId, lanes, rows] = [(id) => document.getElementById(id), data.lanes, data.rows];
const scroller = byId("scroll"), picture = byId("picture"), detail = byId("detail");

const marked = new Set(data.failures.flatMap((failure) => failure.rows));
let shown = [];   // rows that pass the filters, in order
let place = [];   // row -> where it is among them, -1 if it is not
let blocks = [];  // of each block of rows, the arrows that are in it
let columns = []; // lane -> its column, -1 where none of its rows is shown
let chosen = -1, laneWidth = 100;

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const seconds = (time) => (time / 1e6).toFixed(6);
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "\u2026" : text);
const x = (lane) => TIMES + laneWidth * (columns[lane] + 0.5);
const y = (at) => TOP + ROW * at + ROW / 2;

// Filters

function offer(select, prefix) {
  const found = new Set();
  for (const row of rows) for (const key of row.keys) if (key.startsWith(prefix)) found.add(key);
  const names = [...found].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  select.innerHTML = '<option value="">all</option>' +
    names.map((key) => `<option value="${escaped(key)}">${escaped(key.slice(prefix.length))}</option>`).join("");
}

function filter() {
  const keys = ["producer", "partition", "id"].map((id) => byId(id).value).filter(Boolean);
  const text = byId("text").value.toLowerCase();
  // What befalls the node is shown with everything: it may be why.
  const always = new Set(["Trouble", "NodeChange", "Failure"]);
  shown = [];
  place = new Int32Array(rows.length).fill(-1);
  rows.forEach((row, number) => {
    const passes = keys.every((key) => row.keys.includes(key)) && row.text.toLowerCase().includes(text);
    if (passes || (always.has(row.kind) && !text)) { place[number] = shown.length; shown.push(number); }
  });
  blocks = Array.from({ length: Math.ceil(shown.length / BLOCK) + 1 }, () => []);
  for (const arrow of data.arrows) {
    const [from, to] = [place[arrow[0]], place[arrow[1]]];
    if (from < 0 || to < 0) continue;  // both are shown or none is: they belong together
    for (let block = Math.floor(from / BLOCK); block <= Math.floor(to / BLOCK); block++) blocks[block].push(arrow);
  }
  byId("count").textContent = `${shown.length} of ${rows.length} events`;
  layOut();
}

function layOut() {
  const used = new Set(shown.map((number) => rows[number].lane));
  let count = 0;
  columns = lanes.map((_, lane) => (used.has(lane) ? count++ : -1));
  laneWidth = Math.max(100, (scroller.clientWidth - TIMES - 130) / count);
  const width = TIMES + laneWidth * count + 130;
  byId("world").style.cssText = `width:${width}px;height:${TOP + ROW * (shown.length + 2)}px`;
  byId("names").innerHTML = lanes.map((name, lane) => columns[lane] < 0 ? "" :
    `<span style="left:${x(lane)}px;max-width:${laneWidth}px" title="${escaped(name)}">${escaped(name)}</span>`).join("");
  picture.setAttribute("width", width);
  draw();
}

// The picture

function draw() {
  const height = scroller.clientHeight - TOP, top = scroller.scrollTop;
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const last = Math.min(shown.length - 1, Math.ceil((top + height) / ROW) + AROUND);
  picture.setAttribute("height", height);
  picture.style.top = `${top + TOP}px`;
  picture.setAttribute("viewBox", `0 ${top + TOP} ${picture.getAttribute("width")} ${height}`);
  const parts = [];
  const width = Number(picture.getAttribute("width"));
  for (const [from, to, what] of data.troubles) band(parts, from, to, first, last, "trouble", 0, width, what);
  const node = lanes.indexOf("node");
  for (const [from, to] of columns[node] < 0 ? [] : data.down) band(parts, from, to, first, last, "down", x(node) - laneWidth / 2, laneWidth, "");
  for (let lane = 0; lane < lanes.length; lane++)
    if (columns[lane] >= 0)
      parts.push(`<line class="lane" x1="${x(lane)}" x2="${x(lane)}" y1="${y(first) - ROW}" y2="${y(last) + ROW}"/>`);
  const drawn = new Set();
  for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK) && block < blocks.length; block++)
    for (const arrow of blocks[block])
      if (!drawn.has(arrow) && place[arrow[0]] <= last && place[arrow[1]] >= first) { drawn.add(arrow); line(parts, arrow); }
  for (let at = first; at <= last; at++) dot(parts, at);
  times(parts, first, last);
  picture.innerHTML = parts.join("");
  document.documentElement.dataset.drawn = last - first + 1;
}

function times(parts, first, last) {  // beside what is in sight, however far to the right that is
  const left = scroller.scrollLeft;
  parts.push(`<rect class="gutter" x="${left}" width="${TIMES - 8}" y="${y(first) - ROW}" height="${ROW * (last - first + 3)}"/>`);
  for (let at = first; at <= last; at++) {
    const time = rows[shown[at]].time;
    if (at === first || rows[shown[at - 1]].time !== time)
      parts.push(`<text class="time" x="${left + 8}" y="${y(at) + 4}">${seconds(time)}</text>`);
  }
}

function band(parts, from, to, first, last, kind, left, width, what) {
  const begin = nearest(from), end = nearest(to);
  if (begin > last || end < first) return;
  const top = y(Math.max(begin, first - 1)) - ROW / 2, bottom = y(Math.min(end, last + 1)) + ROW / 2;
  parts.push(`<rect class="${kind}" x="${left}" width="${width}" y="${top}" height="${bottom - top}"/>`);
  if (what && begin >= first) parts.push(`<line class="edge" x1="0" x2="${width}" y1="${top}" y2="${top}"/>`);
}

function nearest(row) {  // where it is, or where it would be
  while (row < rows.length && place[row] < 0) row++;
  return row < rows.length ? place[row] : shown.length - 1;
}

function line(parts, [from, to, kind]) {
  const sender = rows[from].lane, lost = kind.startsWith("lost");
  const other = lost ? (kind === "lost request" ? lanes.indexOf("node") : rows[to].lane) : rows[to].lane;
  let [x1, y1, x2, y2] = [x(sender), y(place[from]), x(other), y(place[to])];
  if (lost) { x2 = x1 + (x2 - x1) * 0.6; y2 = y1 + (y2 - y1) * 0.6; }
  const wide = chosen >= 0 && rows[chosen].of && rows[chosen].of === rows[from].of ? " wide" : "";
  const name = kind.replace("lost ", "");
  parts.push(`<path class="arrow ${lost ? "lost" : name}${wide}" data-kind="${kind}" d="M${x1} ${y1}L${x2} ${y2}${head(x1, y1, x2, y2, lost)}"/>`);
}

function head(x1, y1, x2, y2, lost) {
  if (lost) return `M${x2 - 5} ${y2 - 5}l10 10m0 -10l-10 10`;
  const angle = Math.atan2(y2 - y1, x2 - x1), at = (turn) =>
    `M${x2} ${y2}L${x2 - 8 * Math.cos(angle + turn)} ${y2 - 8 * Math.sin(angle + turn)}`;
  return at(0.4) + at(-0.4);
}

function dot(parts, at) {
  const number = shown[at], row = rows[number], left = x(row.lane), middle = y(at);
  const classes = `row${marked.has(number) ? " marked" : ""}${together(number) ? " chosen" : ""}`;
  const bad = row.kind === "Answer" && row.label || (row.kind === "Outcome" && row.label !== "returns") ? " bad" : "";
  const wide = ["Trouble", "Transition", "Failure", "NodeChange", "Note", "Run"].includes(row.kind) || row.lane === 0;
  const label = cut(row.kind === "Run" ? row.text : row.label, wide ? 120 : 34);
  parts.push(`<g class="${classes}" data-row="${number}"><title>${escaped(row.text)}</title>` +
    `<rect class="hit" x="0" width="${picture.getAttribute("width")}" y="${middle - ROW / 2}" height="${ROW}"/>` +
    `<circle class="of-${row.kind}${bad}" cx="${left}" cy="${middle}" r="4"/>` +
    `<text class="halo of-${row.kind}${bad}" x="${left + 8}" y="${middle + 4}">${escaped(label)}</text></g>`);
}

const together = (number) =>
  chosen >= 0 && (number === chosen || (rows[chosen].of && rows[number].of === rows[chosen].of));

// Details

function show(number) {
  const all = rows[number].of ? rows.filter((row) => row.of === rows[number].of) : [rows[number]];
  detail.innerHTML = all.map((row) => `<p><time>${seconds(row.time)}</time>${escaped(row.text)}</p>`).join("") +
    `<pre>${escaped(JSON.stringify(rows[number].event, null, 1).replace(/\n\s*/g, " "))}</pre>`;
}

function go(number) {
  if (place[number] < 0) { byId("filters").reset(); filter(); }
  chosen = number;
  scroller.scrollTop = Math.max(0, ROW * place[number] - scroller.clientHeight / 2);
  scroller.scrollLeft = Math.max(0, x(rows[number].lane) - scroller.clientWidth / 2);
  show(number);
  draw();
}

function rowOf(event) {
  const found = event.target.closest("[data-row]");
  return found ? Number(found.dataset.row) : -1;
}

picture.addEventListener("mouseover", (event) => { const row = rowOf(event); if (row >= 0 && chosen < 0) show(row); });
picture.addEventListener("click", (event) => {
  const row = rowOf(event);
  chosen = row === chosen ? -1 : row;
  if (row >= 0) show(row);
  draw();
});
scroller.addEventListener("scroll", () => requestAnimationFrame(draw));
window.addEventListener("resize", layOut);
byId("filters").addEventListener("input", filter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("reset", () => setTimeout(filter));

byId("failures").innerHTML = data.failures.map((failure, number) =>
  `<li><strong>BROKEN</strong> ${escaped(failure.what)} <button data-failure="${number}">show where</button></li>`).join("");
byId("failures").addEventListener("click", (event) => {
  const failure = data.failures[event.target.dataset.failure];
  if (failure && failure.rows.length) go(failure.rows[failure.rows.length - 1]);
});
if (data.run) {
  byId("title").textContent = document.title = `Seed ${data.run.seed}${data.failures.length ? ": broken" : ""}`;
  byId("command").textContent = data.run.command;
  byId("command").title = data.run.circumstances.join("\n");
}
offer(byId("producer"), "producer ");
offer(byId("partition"), "partition ");
offer(byId("id"), "id ");
filter();
document.documentElement.dataset.rows = rows.length;
if (data.failures.length && data.failures[0].rows.length) go(data.failures[0].rows[data.failures[0].rows.length - 1]);
