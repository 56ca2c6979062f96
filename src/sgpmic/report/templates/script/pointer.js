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
    show(pick(to.x, to.y, 14), 350);
  }
}

function released(event) {
  if (stroke) {
    if (event.type === "pointercancel") { cancelStroke(); return; }
    if (endStroke()) return;
    pointers.set(event.pointerId, placeIn(event)); // hardly moved: a click
    moved = 0;
  }
  const tapped = pointers.delete(event.pointerId) && moved <= 6 && event.type === "pointerup";
  box.classList.remove("dragging");
  if (!tapped) return;
  const to = placeIn(event);
  const found = pick(to.x, to.y, event.pointerType === "mouse" ? 14 : 24);
  state.kept = found >= 0;
  show(found, 0);
}

let hintTimer = 0;

function hint() {
  $("hint").hidden = false;
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => { $("hint").hidden = true; }, 1400);
}

/** The wheel zooms only when asked for, so that the page can be scrolled past the picture. */
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

/** Escape lets go of one thing at a time: what is being drawn, the row, the selection. */
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
