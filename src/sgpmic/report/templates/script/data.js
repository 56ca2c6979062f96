/* Interactive plot of the latent space on a canvas. No library: marks are blended directly into the
   canvas's pixels, which needs no WebGL and takes a few hundredths of a second for 100 000 rows on
   one slow core.

   Everything that comes from the data is shown with textContent, never as HTML. */
const $ = (id) => document.getElementById(id);
const payload = $("payload");
const data = JSON.parse(payload.textContent);

const ARRAYS = { float32: Float32Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

function unpack(packed) {
  const text = atob(packed.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[packed.type](bytes.buffer); // little-endian, as on every platform that browsers run on
}

const n = data.n;
const top = data.memberships.top;
const topClusters = unpack(data.memberships.clusters);
const topChances = unpack(data.memberships.chances);
const rowNumbers = data.rows ? unpack(data.rows) : null;
const allValues = unpack(data.values.codes);
// Categorical columns: the given labels (null if none), then the categories.
const groups = [data.given, ...data.categories].map((column) => column && { ...column, codes: unpack(column.codes) });

/** Minimum and maximum, as d3.extent. */
function extremes(values) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; i++) { low = Math.min(low, values[i]); high = Math.max(high, values[i]); }
  return [low, high];
}

const clusterOf = (i) => topClusters[i * top];
const certaintyOf = (i) => topChances[i * top] / 65535;
const rowOf = (i) => (rowNumbers ? rowNumbers[i] : i);
const nameOf = (i) => (data.ids && data.ids[i]) || "row " + (rowOf(i) + 1);

const valueOf = (i, feature) => allValues[feature * n + i];

const levelOf = (i, group) => group.names[group.codes[i]];

/** Index of a table row in the plotted sample, -1 if it is not in it. */
function indexOfRow(row) {
  if (!rowNumbers) return row >= 0 && row < n ? row : -1;
  return rowNumbers.indexOf(row);
}

function number(value, digits = 6) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) < 1e-12) return "0"; // rounding error
  // As in the text of the page, large numbers are written out, but not beyond their precision.
  const large = Math.abs(value) >= 10 ** digits - 0.5;
  const short = large ? Math.round(Number(value.toPrecision(7))) : Number(value.toPrecision(digits));
  const size = Math.abs(short);
  let text = String(short); // 1994 is a year: no separator
  if (size >= 1e15 || (size !== 0 && size < 1e-4)) text = short.toExponential();
  else if (size >= 1e4 && Number.isInteger(short)) text = short.toLocaleString("en-US");
  return text.replace(/-/g, "−");
}

/** A feature's value as text; dates and times are days since their origin, in days since 1970. */
function valueWords(value, feature, digits) {
  const date = data.dates.indexOf(feature);
  if (!Number.isFinite(value) || date < 0) return number(value, digits);
  const parts = data.dayParts[date]; // minutes, if any value has a time
  const time = new Date((Math.round((data.origins[date] + value) * parts) * 864e5) / parts);
  const from = data.timesOfDay.includes(feature) ? 11 : 0;
  return time.toISOString().slice(from, from || parts > 1 ? 16 : 10).replace("T", " ");
}

function percent(share) {
  if (share >= 0.9995 && share < 1) return "> 99.9 %";
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return (100 * share).toFixed(1) + " %";
}

function sentence(i) {
  let words = `${nameOf(i)}: ${clusterName(clusterOf(i))}, certainty ${percent(certaintyOf(i))}`;
  if (groups[0]) words += `, ${groups[0].name} ${levelOf(i, groups[0])}`;
  const some = Math.min(data.features.length, 4);
  for (let f = 0; f < some; f++) words += `, ${data.features[f]} ${valueWords(valueOf(i, f), f)}`;
  for (const text of data.texts) words += `, ${text.name} ${text.words[i]}`;
  for (const group of groups.slice(1, 3)) words += `, ${group.name} ${levelOf(i, group)}`;
  return words + ".";
}

// Cluster names given by the reader, stored in a separate element so that saving the page with new
// names leaves the rest unchanged.
const names = Array.from({ length: data.nClusters }, (_, m) => JSON.parse($("names").textContent)[m] || "");
let namesChanged = false; // unsaved changes

const clusterName = (m) => names[m] || "cluster " + m;

/** Update every mention of a cluster on the page. */
function showNames() {
  for (const place of document.querySelectorAll("[data-name-of]")) {
    const m = Number(place.dataset.nameOf);
    if (place.dataset.plain === undefined) place.dataset.plain = place.textContent;
    place.textContent = names[m] ? `${m}: ${names[m]}` : place.dataset.plain;
  }
}

function rename(m, words) {
  names[m] = words.trim().slice(0, 60);
  namesChanged = true;
  $("save-names").hidden = false;
  showNames();
  if (state.row >= 0) fillDetails(state.row);
  fillRows();
  redraw();
}

function connectNames() {
  for (const input of document.querySelectorAll("[data-rename]")) {
    const m = Number(input.dataset.rename);
    input.value = names[m];
    input.addEventListener("change", () => rename(m, input.value));
  }
  for (const form of document.querySelectorAll("form.rename")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  $("save-names").addEventListener("click", saveNamedPage);
  window.addEventListener("beforeunload", (event) => { if (namesChanged) event.preventDefault(); });
}

const box = $("canvas-box");
const canvas = $("points");
// Pixels are read back at every redraw: keep the canvas in main memory.
const pen = canvas.getContext("2d", { willReadFrequently: true });
const overPen = $("overlay").getContext("2d");
const state = {
  color: "cluster", // or certainty, given, feature:<k>, category:<k>
  selected: new Set(), // emphasized clusters; all if empty
  picked: new Uint8Array(n), // 1 for rows selected manually; all if none
  nPicked: 0,
  tool: "pan", // or box, lasso
  layers: { outlines: true, density: true, boundaries: true },
  row: -1, // index of the current row
  kept: false, // whether it is pinned, so that hovering does not change it
  frames: 0,
  redrawMs: 0,
};
const view = { x: 0, y: 0, sx: 1, sy: 1 }; // center, pixels per unit
const size = { width: 0, height: 0, ratio: 1 };
const MARGIN = { left: data.oneDimension ? 16 : 54, right: 12, top: 12, bottom: 38 };
let home = { x: 0, y: 0, sx: 1, sy: 1 };
let waiting = false;

const inClusters = (i) => state.selected.size === 0 || state.selected.has(clusterOf(i));
const isActive = (i) => inClusters(i) && (state.nPicked === 0 || state.picked[i] === 1);
const innerWidth = () => size.width - MARGIN.left - MARGIN.right;
const innerHeight = () => size.height - MARGIN.top - MARGIN.bottom;
const toX = (x) => MARGIN.left + innerWidth() / 2 + (x - view.x) * view.sx;
const toY = (y) => MARGIN.top + innerHeight() / 2 - (y - view.y) * view.sy;
const fromX = (px) => view.x + (px - MARGIN.left - innerWidth() / 2) / view.sx;
const fromY = (py) => view.y - (py - MARGIN.top - innerHeight() / 2) / view.sy;
