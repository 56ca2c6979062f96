// Manual selection of rows: box or lasso in either plot, the S key, or the table.
let stroke = null; // box or lasso in progress: surface, points in CSS pixels, whether to add to the selection

const TOOLS = ["pan", "box", "lasso"];

function chooseTool(name) {
  state.tool = name;
  for (const tool of TOOLS) $("tool-" + tool).setAttribute("aria-pressed", String(tool === name));
  for (const one of [box, $("principal-box")]) {
    if (one) one.style.touchAction = name === "pan" ? "" : "none";
  }
}

function beginStroke(event, surface, at) {
  stroke = { surface, points: [at], add: event.shiftKey };
  surface.box.setPointerCapture(event.pointerId);
}

function extendStroke(at) {
  stroke.points.push(at);
  drawOverlays();
}

function cancelStroke() {
  stroke = null;
  drawOverlays();
}

/** The vertices of the box or lasso. */
function strokePolygon() {
  const points = stroke.points;
  if (state.tool === "lasso") return points;
  const a = points[0], b = points[points.length - 1];
  return [a, { x: b.x, y: a.y }, b, { x: a.x, y: b.y }];
}

function drawStroke(brush, surface) {
  if (!stroke || stroke.surface.box !== surface.box) return;
  brush.beginPath();
  strokePolygon().forEach(({ x, y }, k) => (k ? brush.lineTo(x, y) : brush.moveTo(x, y)));
  brush.closePath();
  brush.fillStyle = theme.shade;
  brush.globalAlpha = 0.18;
  brush.fill();
  brush.globalAlpha = 1;
  brush.strokeStyle = theme.ink;
  brush.lineWidth = 1.5;
  brush.setLineDash([5, 4]);
  brush.stroke();
  brush.setLineDash([]);
}

/** Point in polygon, by the even-odd rule. */
function isInside(polygon, x, y) {
  let odd = false;
  for (let k = 0, j = polygon.length - 1; k < polygon.length; j = k++) {
    const a = polygon[k], b = polygon[j];
    if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) odd = !odd;
  }
  return odd;
}

/** Select the rows inside; return false if the pointer hardly moved, which is a click. */
function endStroke() {
  const { surface, points, add } = stroke;
  const polygon = strokePolygon();
  const [x0, x1] = extremes(points.map((p) => p.x)), [y0, y1] = extremes(points.map((p) => p.y));
  cancelStroke();
  if (Math.hypot(x1 - x0, y1 - y0) < 6) return false;
  const found = [];
  for (let i = 0; i < n; i++) {
    if (!inClusters(i)) continue;
    const px = surface.toX(surface.x[i]), py = surface.toY(surface.y[i]);
    if (px >= x0 && px <= x1 && py >= y0 && py <= y1 && isInside(polygon, px, py)) found.push(i);
  }
  pickRows(found, add);
  return true;
}

/** Replace the selection by these rows, or add them to it. */
function pickRows(rows, add) {
  if (!add) state.picked.fill(0);
  for (const i of rows) state.picked[i] = 1;
  pickedChanged();
}

function togglePicked(i) {
  state.picked[i] = 1 - state.picked[i];
  pickedChanged();
}

function pickedChanged() {
  state.nPicked = state.picked.reduce((sum, one) => sum + one, 0);
  speak(state.nPicked ? `${state.nPicked} rows are selected.` : "No rows are selected.", 0);
  recolor();
  fillProfile();
  fillRows();
}

function connectSelection() {
  for (const tool of TOOLS) $("tool-" + tool).addEventListener("click", () => chooseTool(tool));
  $("selection-clear").addEventListener("click", () => { pickRows([], false); box.focus({ preventScroll: true }); });
  $("selection-save").addEventListener("click", () => saveRows(indices((i) => state.picked[i]), "selected"));
}

// How the selected rows differ from all others: Cohen's d of numeric columns and Cohen's h of levels,
// both as the near end of the 95 % confidence interval, as on the cards.
const MOST_DIFFERENCES = 8;
const LARGEST_EFFECT = 100; // as in statistics.py
const SMALL_EFFECT = 0.2; // as in explanations.py

const indices = (wanted) => { const found = []; for (let i = 0; i < n; i++) if (wanted(i)) found.push(i); return found; };

/** The end of an effect size's 95 % confidence interval nearer to 0, as in statistics.py. */
function certainPart(effect, counts, more) {
  const error = 1.96 * Math.sqrt(1 / counts[0] + 1 / counts[1] + more);
  return Math.sign(effect) * Math.max(Math.abs(effect) - error, 0);
}

/** Counts, means and Cohen's d of a feature in other and selected rows, with values clipped. */
function compareMeans(feature, low, high) {
  const counts = [0, 0], sums = [0, 0];
  const clipped = (i) => Math.min(Math.max(valueOf(i, feature), low), high);
  for (let i = 0; i < n; i++) {
    const value = clipped(i);
    if (Number.isNaN(value)) continue;
    counts[state.picked[i]]++;
    sums[state.picked[i]] += value;
  }
  const means = sums.map((sum, k) => sum / counts[k]);
  let scatter = 0;
  for (let i = 0; i < n; i++) {
    const value = clipped(i);
    if (!Number.isNaN(value)) scatter += (value - means[state.picked[i]]) ** 2;
  }
  const deviation = Math.sqrt(scatter / Math.max(counts[0] + counts[1] - 2, 1));
  const apart = means[1] - means[0];
  const d = apart === 0 ? 0 : Math.max(-LARGEST_EFFECT, Math.min(LARGEST_EFFECT, apart / deviation));
  return { counts, means, d };
}

/** Means of a feature in selected and other rows, and the near end of Cohen's d's interval. */
function compareNumbers(feature) {
  const [low, high] = [data.usual[0][feature] ?? -Infinity, data.usual[1][feature] ?? Infinity];
  const usual = compareMeans(feature, low, high), { counts, d } = usual;
  if (!counts[0] || !counts[1]) return null;
  const table = compareMeans(feature, -Infinity, Infinity);
  // As on the cards: the table's means, unless outliers reverse the sign of their difference.
  const { means } = table.d * d < 0 ? usual : table;
  // Missing values count as no difference, as in explanations.py.
  const effect = (certainPart(d, counts, (d * d) / (2 * (counts[0] + counts[1]))) * counts[1]) / state.nPicked;
  const words = means.map((mean) => valueWords(mean, feature, 4));
  return { name: data.features[feature], effect, inside: words[1], outside: words[0] };
}

/** A proportion in the selected rows compared with the others, by Cohen's h. */
function compareShares(name, counts, totals) {
  if (!totals[0] || !totals[1]) return null;
  const shares = counts.map((count, side) => count / totals[side]);
  // Jeffreys prior, as in statistics.py.
  const angles = counts.map((count, side) => 2 * Math.asin(Math.sqrt((count + 0.5) / (totals[side] + 1))));
  const effect = (certainPart(angles[1] - angles[0], totals, 0) * totals[1]) / state.nPicked;
  return { name, effect, inside: percent(shares[1]), outside: percent(shares[0]) };
}

/** The proportion of missing values of a feature. */
function compareGaps(feature) {
  const counts = [0, 0];
  for (let i = 0; i < n; i++) if (Number.isNaN(valueOf(i, feature))) counts[state.picked[i]]++;
  return compareShares(`${data.features[feature]} is missing`, counts, [n - state.nPicked, state.nPicked]);
}

/** The level of a category whose proportion differs most, among rows that are not missing. */
function compareLevels(group) {
  const tables = [0, 1].map(() => new Float64Array(group.names.length));
  for (let i = 0; i < n; i++) tables[state.picked[i]][group.codes[i]]++;
  const gaps = group.names.indexOf(MISSING);
  const totals = [n - state.nPicked, state.nPicked];
  const seen = totals.map((total, side) => total - (gaps < 0 ? 0 : tables[side][gaps]));
  const found = group.names.map((level, k) => {
    const counts = tables.map((table) => table[k]);
    return k === gaps ? compareShares(`${group.name} is missing`, counts, totals) : compareShares(`${group.name}: ${level}`, counts, seen);
  });
  return found.reduce((best, one) => (one && (!best || Math.abs(one.effect) > Math.abs(best.effect)) ? one : best), null);
}

function differences() {
  const features = data.features.map((_, f) => f);
  const found = [...features.map(compareNumbers), ...features.map(compareGaps), ...groups.filter(Boolean).map(compareLevels)];
  return found.filter((one) => one && Math.abs(one.effect) >= SMALL_EFFECT).sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
}

function effectRow(one, largest) {
  const row = element("tr"), head = element("th"), track = element("td", "track");
  head.scope = "row";
  head.append(element("bdi", "", shorten(one.name, 60)), element("small", "", `${one.inside} against ${one.outside}`));
  const bar = element("span", one.effect < 0 ? "bar low" : "bar");
  const width = (50 * Math.abs(one.effect)) / largest;
  bar.style.left = (one.effect < 0 ? 50 - width : 50) + "%";
  bar.style.width = width + "%";
  track.append(bar);
  const effect = (one.effect > 0 ? "+" : "−") + Math.abs(one.effect).toFixed(2);
  row.append(head, track, element("td", "figure", effect));
  return row;
}

/** Text with the number of selected rows in each cluster. */
function pickedClusters() {
  const counts = new Map();
  for (let i = 0; i < n; i++) if (state.picked[i]) counts.set(clusterOf(i), (counts.get(clusterOf(i)) || 0) + 1);
  const parts = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6);
  const words = parts.map(([m, count]) => `${count.toLocaleString("en")} in ${shorten(clusterName(m), 40)}`);
  return words.join(", ") + (counts.size > parts.length ? " and others" : "") + ".";
}

function fillProfile() {
  const panel = $("selection");
  panel.hidden = state.nPicked === 0;
  if (panel.hidden) return;
  const rows = state.nPicked === 1 ? "row" : "rows";
  $("selection-title").textContent = `${state.nPicked.toLocaleString("en")} selected ${rows}`;
  $("selection-clusters").textContent = pickedClusters();
  const found = state.nPicked < n ? differences().slice(0, MOST_DIFFERENCES) : [];
  const largest = found.length ? Math.abs(found[0].effect) : 1;
  $("selection-effects").replaceChildren(...found.map((one) => effectRow(one, largest)));
  $("selection-table").hidden = found.length === 0;
}
