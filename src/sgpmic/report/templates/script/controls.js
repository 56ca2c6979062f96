const pointers = new Map();
let moved = 0;

function placeIn(event, where) {
  const frame = (where || box).getBoundingClientRect();
  return { x: event.clientX - frame.left - 1, y: event.clientY - frame.top - 1 };
}

function pressed(event) {
  if (event.button) return;
  if (state.tool !== "pan") { beginStroke(event, latentSurface(), placeIn(event)); return; }
  pointers.set(event.pointerId, placeIn(event));
  moved = 0;
  if (event.pointerType === "mouse") box.setPointerCapture(event.pointerId);
}

function pinch(event, to) {
  const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
  const from = pointers.get(event.pointerId);
  const before = Math.hypot(from.x - other.x, from.y - other.y);
  const after = Math.hypot(to.x - other.x, to.y - other.y);
  if (before > 0) zoom(after / before, (to.x + other.x) / 2, (to.y + other.y) / 2);
}

function pointerMoved(event) {
  const to = placeIn(event);
  if (stroke) { extendStroke(to); return; }
  const from = pointers.get(event.pointerId);
  if (from) {
    moved += Math.hypot(to.x - from.x, to.y - from.y);
    if (pointers.size === 2) pinch(event, to);
    else if (event.pointerType === "mouse" && moved > 3) {
      box.classList.add("dragging");
      pan(to.x - from.x, to.y - from.y);
    }
    pointers.set(event.pointerId, to);
  } else if (!state.kept) {
    show(pick(latentSurface(), to, 14), 350);
  }
}

function released(event) {
  if (stroke) {
    if (event.type === "pointercancel") { cancelStroke(); return; }
    if (endStroke()) return;
    pointers.set(event.pointerId, placeIn(event)); // hardly moved: treat as a click
    moved = 0;
  }
  const tapped = pointers.delete(event.pointerId) && moved <= 6 && event.type === "pointerup";
  box.classList.remove("dragging");
  if (!tapped) return;
  const found = pick(latentSurface(), placeIn(event), event.pointerType === "mouse" ? 14 : 24);
  state.kept = found >= 0;
  show(found, 0);
}

let hintTimer = 0;

function hint() {
  $("hint").hidden = false;
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => { $("hint").hidden = true; }, 1400);
}

/** The wheel zooms only with focus or Ctrl/Cmd, so that the page can be scrolled past the plot. */
function wheel(event) {
  if (document.activeElement !== box && !event.ctrlKey && !event.metaKey) { hint(); return; }
  event.preventDefault();
  const at = placeIn(event);
  const lines = event.deltaMode === 1 ? 24 : 1;
  zoom(Math.exp(-0.0016 * event.deltaY * lines), at.x, at.y);
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function moveTo(i) {
  if (i >= 0) keep(i, 0);
  else speak("No more rows that way.", 0);
}

/** Escape cancels, in this order: the box or lasso in progress, the current row, the selection. */
function leave() {
  if (stroke) cancelStroke();
  else if (state.row >= 0) keep(-1, 0);
  else if (state.nPicked) pickRows([], false);
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey) pan(-60 * arrow[0], -60 * arrow[1]);
  else if (arrow) moveTo(state.row < 0 || !inClusters(state.row) ? centralRow() : neighbor(...arrow));
  else if (event.key === "PageDown") moveTo(following(1));
  else if (event.key === "PageUp") moveTo(state.row < 0 ? n - 1 : following(-1));
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-" || event.key === "_") zoom(1 / 1.4);
  else if (event.key === "0") resetView();
  else if (event.key === "Enter") keep(state.row, 0);
  else if (event.key === "s" && state.row >= 0) togglePicked(state.row);
  else if (event.key === "Escape") leave();
  else return;
  event.preventDefault();
}

function fillColors() {
  const select = $("color");
  if (data.given) select.append(option("given", shorten(data.given.name, 40)));
  const columns = document.createElement("optgroup");
  columns.label = data.categories.length ? "columns" : "features";
  data.features.forEach((name, f) => columns.append(option("feature:" + f, shorten(name, 40))));
  data.categories.forEach(({ name }, k) => columns.append(option("category:" + k, shorten(name, 40))));
  if (columns.children.length) select.append(columns);
}

function option(value, text) {
  const made = element("option", "", text || "(no name)");
  made.value = value;
  return made;
}

function toggleCluster(m) {
  if (!state.selected.delete(m)) state.selected.add(m);
  markSelection();
}

function markSelection() {
  for (const button of document.querySelectorAll("[data-cluster]")) {
    button.setAttribute("aria-pressed", String(state.selected.has(Number(button.dataset.cluster))));
  }
  $("everything").disabled = state.selected.size === 0;
  const chosen = [...state.selected].sort((a, b) => a - b);
  if (state.row >= 0 && !isActive(state.row)) keep(-1, 0);
  speak(chosen.length ? `Emphasized: cluster ${chosen.join(", ")}.` : "All clusters are shown alike.", 0);
  recolor();
  if (table.which === "emphasised") fillRows();
}

function toggleLayer(button, name) {
  state.layers[name] = !state.layers[name];
  button.setAttribute("aria-pressed", String(state.layers[name]));
  redraw();
}

/** Show a row linked from elsewhere on the page. */
function visit(row) {
  const i = indexOfRow(row);
  if (i < 0) { speak("That row is not in the picture’s sample.", 0); return; }
  if (!inClusters(i)) { state.selected.clear(); markSelection(); }
  if (!isActive(i)) pickRows([], false);
  keep(i, 100);
  box.scrollIntoView({ block: "nearest" });
  box.focus({ preventScroll: true });
}

/** Find a row by name, prefix of a name, substring of its texts, or row number, in this order. */
function find(words) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return;
  let found = -1;
  if (data.ids) {
    const names = data.ids.map((name) => name.toLowerCase());
    found = names.indexOf(wanted);
    if (found < 0) found = names.findIndex((name) => name.startsWith(wanted));
  }
  for (const text of data.texts) if (found < 0) found = text.words.findIndex((words) => words.toLowerCase().includes(wanted));
  if (found < 0 && /^(row\s*)?\d+$/.test(wanted)) found = indexOfRow(Number(wanted.replace(/\D/g, "")) - 1);
  const input = $("find-row");
  input.setAttribute("aria-invalid", String(found < 0));
  if (found < 0) speak(`There is no row “${words}” in the picture.`, 0);
  input.setCustomValidity(found < 0 ? "There is no such row in the picture." : "");
  input.reportValidity();
  if (found >= 0) visit(rowOf(found));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").setAttribute("aria-pressed", String(name === "dark"));
  readTheme();
  recolor();
}

/** Print in the light theme. */
function preparePrint() {
  let before;
  window.addEventListener("beforeprint", () => {
    before = theme.dark ? "dark" : "light";
    setTheme("light");
    waiting = false;
    draw();
  });
  window.addEventListener("afterprint", () => setTheme(before));
}

function connect() {
  box.addEventListener("pointerdown", pressed);
  box.addEventListener("pointermove", pointerMoved);
  box.addEventListener("pointerup", released);
  box.addEventListener("pointercancel", released);
  box.addEventListener("pointerleave", () => { if (!state.kept && !pointers.size) show(-1, 0); });
  box.addEventListener("dblclick", (event) => { const at = placeIn(event); zoom(2, at.x, at.y); });
  box.addEventListener("wheel", wheel, { passive: false });
  box.addEventListener("keydown", key);
  $("color").addEventListener("change", (event) => { state.color = event.target.value; recolor(); });
  $("zoom-in").addEventListener("click", () => zoom(1.5));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
  $("reset").addEventListener("click", resetView);
  $("everything").addEventListener("click", () => { state.selected.clear(); markSelection(); });
  $("find").addEventListener("submit", (event) => { event.preventDefault(); find($("find-row").value); });
  $("find-row").addEventListener("input", (event) => event.target.setCustomValidity(""));
  $("theme").addEventListener("click", () => setTheme(theme.dark ? "light" : "dark"));
  for (const name of ["outlines", "density", "boundaries"]) {
    $("layer-" + name).addEventListener("click", (event) => toggleLayer(event.currentTarget, name));
  }
  for (const button of document.querySelectorAll("[data-cluster]")) {
    button.addEventListener("click", () => toggleCluster(Number(button.dataset.cluster)));
  }
  for (const button of document.querySelectorAll("[data-row]")) {
    button.addEventListener("click", () => visit(Number(button.dataset.row)));
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    setTheme(event.matches ? "dark" : "light");
  });
  connectPlanes();
  connectPrincipal();
  connectSelection();
  connectRows();
  connectSaving();
  connectNames();
  new ResizeObserver(resize).observe(box);
  preparePrint();
}

/** API for tests and for the console: what is drawn, and where. */
window.sgpmicReport = Object.freeze({
  state: () => ({
    n,
    color: state.color,
    selected: [...state.selected],
    picked: indices((i) => state.picked[i]).map(rowOf),
    tool: state.tool,
    axes: map.axes,
    angle: turn.angle,
    beside: principalShown(),
    names: [...names],
    layers: { ...state.layers },
    row: state.row < 0 ? null : rowOf(state.row),
    kept: state.kept,
    zoom: view.sx / home.sx,
    center: [view.x, view.y],
    frames: state.frames,
    redrawMs: state.redrawMs,
    dark: theme.dark,
  }),
  place: (row) => { const i = indexOfRow(row); return [toX(X[i]), toY(Y[i])]; },
  colorOf: (row) => { const i = indexOfRow(row); return [...colors.slice(3 * i, 3 * i + 3), opacity[i]]; },
  value: (row, feature) => valueOf(indexOfRow(row), feature),
  pixel: (x, y) => [...pen.getImageData(Math.round(x * size.ratio), Math.round(y * size.ratio), 1, 1).data],
  draw: () => { draw(); return state.redrawMs; },
  principalPlace: (row) => {
    const i = indexOfRow(row), surface = principalSurface();
    return [surface.toX(surface.x[i]), surface.toY(surface.y[i])];
  },
});

$("explorer").hidden = false;
$("theme").hidden = false;
$("more-controls").open = window.innerWidth > 860; // collapsed on phones
fillColors();
buildValues();
showNames();
readTheme();
$("theme").setAttribute("aria-pressed", String(theme.dark));
resize();
recolor();
buildRows();
connect();
