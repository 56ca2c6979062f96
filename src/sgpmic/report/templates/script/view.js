function homeView() {
  const [x0, x1, y0, y1] = homeBox();
  const scale = Math.min(innerWidth() / (x1 - x0), innerHeight() / (y1 - y0));
  return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, sx: scale, sy: scale };
}

const sharpRatio = () => Math.min(window.devicePixelRatio || 1, 2);
let sharpMs = 0; // duration of the last draw at full resolution
let sharpen = 0;

function setRatio(ratio) {
  size.ratio = ratio;
  for (const one of document.querySelectorAll("#pictures canvas")) { // both plots have the same size
    one.width = Math.round(size.width * ratio);
    one.height = Math.round(size.height * ratio);
  }
}

/** Redraw after the view moved; if too slow on a high-DPI screen, at low resolution until it rests. */
function changed() {
  placeTooltip(state.row);
  if (sharpRatio() > 1 && sharpMs > 33) {
    if (size.ratio > 1) setRatio(1);
    clearTimeout(sharpen);
    sharpen = setTimeout(() => { setRatio(sharpRatio()); redraw(); }, 160);
  }
  redraw();
}

function zoom(factor, px, py) {
  const scale = Math.min(Math.max((view.sx / home.sx) * factor, 0.5), 5000) / (view.sx / home.sx);
  const cx = px === undefined ? MARGIN.left + innerWidth() / 2 : px;
  const cy = py === undefined ? MARGIN.top + innerHeight() / 2 : py;
  const x = fromX(cx), y = fromY(cy);
  view.sx *= scale;
  view.sy *= scale;
  view.x += x - fromX(cx);
  view.y += y - fromY(cy);
  changed();
}

function pan(dx, dy) {
  view.x -= dx / view.sx;
  view.y += dy / view.sy;
  changed();
}

function resetView() {
  Object.assign(view, home);
  changed();
}

/** Resize the canvases to their container; the view keeps its center and zoom. */
function resize() {
  const width = box.clientWidth;
  if (!width) return;
  const [x0, x1, y0, y1] = data.maps[0].home; // the same height for every pair of dimensions
  const tall = ((y1 - y0) / (x1 - x0)) * (width - 58) + 50;
  // A notebook's frame does not grow with the page, so the plot takes what the rest leaves of it.
  const rest = document.body.offsetHeight - box.offsetHeight, inFrame = document.body.classList.contains("only-picture");
  const most = Math.max(inFrame ? window.innerHeight - rest : window.innerHeight * 0.85, 320);
  const height = Math.round(Math.min(Math.max(tall, Math.min(360, 0.75 * width)), 620, most));
  if (width === size.width && height === size.height) return;
  const zoomed = size.width ? view.sx / home.sx : 0;
  Object.assign(size, { width, height });
  for (const one of [box, $("principal-box")]) if (one) one.style.height = height + "px";
  setRatio(sharpRatio());
  stamps.clear();
  home = homeView();
  if (zoomed) { view.sx = home.sx * zoomed; view.sy = home.sy * zoomed; } else { Object.assign(view, home); }
  changed();
}

// Principal components beside the latent plot, with the same rows, colors and selection.
const principal = data.principal && {
  box: $("principal-box"),
  pen: $("principal-points").getContext("2d", { willReadFrequently: true }),
  overPen: $("principal-overlay").getContext("2d"),
  x: unpack(data.principal.places).subarray(0, n),
  y: unpack(data.principal.places).subarray(n),
  range: null,
};
const PRINCIPAL_MARGIN = { left: 30, right: 12, top: 12, bottom: 30 };

const principalShown = () => Boolean(principal) && !principal.box.hidden;

/** The PCA plot as a surface: all rows, equal aspect ratio; it does not pan or zoom. */
function principalSurface() {
  principal.range = principal.range || [extremes(principal.x), extremes(principal.y)];
  const [[x0, x1], [y0, y1]] = principal.range;
  const frame = {
    left: PRINCIPAL_MARGIN.left, top: PRINCIPAL_MARGIN.top,
    right: size.width - PRINCIPAL_MARGIN.right, bottom: size.height - PRINCIPAL_MARGIN.bottom,
  };
  const across = frame.right - frame.left, down = frame.bottom - frame.top;
  const s = 0.92 * Math.min(across / Math.max(x1 - x0, 1e-9), down / Math.max(y1 - y0, 1e-9));
  return {
    ...principal, frame, ratio: size.ratio, scale: { x: s, y: s },
    toX: (x) => frame.left + across / 2 + (x - (x0 + x1) / 2) * s,
    toY: (y) => frame.top + down / 2 - (y - (y0 + y1) / 2) * s,
  };
}

function drawPrincipal() {
  if (!principalShown()) return;
  const brush = principal.pen, surface = principalSurface(), { frame } = surface;
  brush.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  brush.fillStyle = theme.page;
  brush.fillRect(0, 0, size.width, size.height);
  const image = brush.getImageData(0, 0, canvas.width, canvas.height);
  stampPoints(image.data, canvas.width, surface);
  brush.putImageData(image, 0, 0);
  brush.strokeStyle = theme.line;
  brush.lineWidth = 1;
  brush.strokeRect(frame.left + 0.5, frame.top + 0.5, frame.right - frame.left - 1, frame.bottom - frame.top - 1);
  brush.fillStyle = theme.ink;
  brush.font = "12px system-ui, sans-serif";
  brush.textAlign = "center";
  brush.textBaseline = "alphabetic";
  const axis = (k) => `principal component ${k + 1} (${percent(data.principal.shares[k])} of the variance)`;
  brush.fillText(axis(0), (frame.left + frame.right) / 2, size.height - 9);
  brush.save();
  brush.translate(18, (frame.top + frame.bottom) / 2);
  brush.rotate(-Math.PI / 2);
  brush.fillText(axis(1), 0, 0);
  brush.restore();
}

function togglePrincipal(button) {
  principal.box.hidden = !principal.box.hidden;
  button.setAttribute("aria-pressed", String(principalShown()));
  $("pictures").classList.toggle("two", principalShown());
  resize();
  redraw();
}

function connectPrincipal() {
  if (!principal) return;
  const button = $("beside");
  button.hidden = false;
  button.addEventListener("click", () => togglePrincipal(button));
  const at = (event) => placeIn(event, principal.box);
  principal.box.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && state.tool !== "pan") beginStroke(event, principalSurface(), at(event));
  });
  principal.box.addEventListener("pointermove", (event) => {
    if (stroke) extendStroke(at(event));
    else if (!state.kept) show(pick(principalSurface(), at(event), 14), 350);
  });
  principal.box.addEventListener("pointerup", (event) => {
    if (stroke && endStroke()) return;
    const found = pick(principalSurface(), at(event), 14);
    state.kept = found >= 0;
    show(found, 0);
  });
  principal.box.addEventListener("pointercancel", cancelStroke);
  principal.box.addEventListener("pointerleave", () => { if (!state.kept && !stroke) show(-1, 0); });
}
