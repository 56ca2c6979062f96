// Rows picked by hand: with a box or a lasso in either picture, with S at a row, or from the table.
let stroke = null; // what is being drawn: the surface, its points in CSS pixels, whether to add

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
  if (stroke.surface.box === box) drawRing();
  else drawPrincipalRing();
}

function cancelStroke() {
  stroke = null;
  drawRing();
  drawPrincipalRing();
}

/** The corners of what has been drawn. */
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

/** Whether a place lies in a polygon: it does if a ray from it crosses the edges an odd number of times. */
function isInside(polygon, x, y) {
  let odd = false;
  for (let k = 0, j = polygon.length - 1; k < polygon.length; j = k++) {
    const a = polygon[k], b = polygon[j];
    if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) odd = !odd;
  }
  return odd;
}

/** Pick the rows inside; false if the pointer has hardly moved, which is a click. */
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

/** Pick rows, in place of those picked before or beside them. */
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
