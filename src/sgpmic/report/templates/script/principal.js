// Principal components beside the learned picture: the same rows, colors and selection.
const principal = data.principal && {
  box: $("principal-box"),
  canvas: $("principal-points"),
  overlay: $("principal-overlay"),
  pen: $("principal-points").getContext("2d", { willReadFrequently: true }),
  overPen: $("principal-overlay").getContext("2d"),
  x: unpack(data.principal.places).subarray(0, n),
  y: unpack(data.principal.places).subarray(n),
  range: null,
  width: 0,
  height: 0,
};
const PRINCIPAL_MARGIN = { left: 30, right: 12, top: 12, bottom: 30 };

const principalShown = () => Boolean(principal) && !principal.box.hidden;

/** The whole cloud with one scale for both axes; this picture is neither moved nor zoomed. */
function principalSurface() {
  const { width, height } = principal;
  principal.range = principal.range || [extremes(principal.x), extremes(principal.y)];
  const [[x0, x1], [y0, y1]] = principal.range;
  const frame = {
    left: PRINCIPAL_MARGIN.left, top: PRINCIPAL_MARGIN.top,
    right: width - PRINCIPAL_MARGIN.right, bottom: height - PRINCIPAL_MARGIN.bottom,
  };
  const across = frame.right - frame.left, down = frame.bottom - frame.top;
  const s = 0.92 * Math.min(across / Math.max(x1 - x0, 1e-9), down / Math.max(y1 - y0, 1e-9));
  return {
    box: principal.box, x: principal.x, y: principal.y, frame, ratio: size.ratio, scale: { x: s, y: s },
    toX: (x) => frame.left + across / 2 + (x - (x0 + x1) / 2) * s,
    toY: (y) => frame.top + down / 2 - (y - (y0 + y1) / 2) * s,
  };
}

function sizePrincipal() {
  if (!principalShown()) return;
  principal.width = principal.box.clientWidth;
  principal.height = size.height;
  principal.box.style.height = size.height + "px";
  for (const one of [principal.canvas, principal.overlay]) {
    one.width = Math.round(principal.width * size.ratio);
    one.height = Math.round(principal.height * size.ratio);
  }
}

function drawPrincipal() {
  if (!principalShown() || !principal.width) return;
  const brush = principal.pen, surface = principalSurface(), { frame } = surface;
  brush.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  brush.fillStyle = theme.page;
  brush.fillRect(0, 0, principal.width, principal.height);
  const image = brush.getImageData(0, 0, principal.canvas.width, principal.canvas.height);
  stampPoints(image.data, principal.canvas.width, surface);
  brush.putImageData(image, 0, 0);
  brush.strokeStyle = theme.line;
  brush.lineWidth = 1;
  brush.strokeRect(frame.left + 0.5, frame.top + 0.5, frame.right - frame.left - 1, frame.bottom - frame.top - 1);
  brush.fillStyle = theme.ink;
  brush.font = "12px system-ui, sans-serif";
  brush.textAlign = "center";
  brush.textBaseline = "alphabetic";
  const axis = (k) => `principal component ${k + 1} (${percent(data.principal.shares[k])} of the variance)`;
  brush.fillText(axis(0), (frame.left + frame.right) / 2, principal.height - 9);
  brush.save();
  brush.translate(18, (frame.top + frame.bottom) / 2);
  brush.rotate(-Math.PI / 2);
  brush.fillText(axis(1), 0, 0);
  brush.restore();
  drawPrincipalRing();
}

function drawPrincipalRing() {
  if (!principalShown()) return;
  principal.overPen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  principal.overPen.clearRect(0, 0, principal.width, principal.height);
  drawStroke(principal.overPen, principalSurface());
  ringOn(principal.overPen, principalSurface());
}

/** The nearest row within reach that is not faded; -1 if there is none. */
function pickPrincipal(px, py, reach) {
  const { x, y, toX: placeX, toY: placeY } = principalSurface();
  let best = -1, closest = reach * reach;
  for (let i = 0; i < n; i++) {
    const dx = placeX(x[i]) - px, dy = placeY(y[i]) - py;
    if (active[i] && dx * dx + dy * dy < closest) { closest = dx * dx + dy * dy; best = i; }
  }
  return best;
}

function togglePrincipal(button) {
  principal.box.hidden = !principal.box.hidden;
  button.setAttribute("aria-pressed", String(principalShown()));
  $("pictures").classList.toggle("two", principalShown());
  resize();
  sizePrincipal();
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
    const { x, y } = at(event);
    if (stroke) extendStroke({ x, y });
    else if (!state.kept) show(pickPrincipal(x, y, 14), 350);
  });
  principal.box.addEventListener("pointerup", (event) => {
    const { x, y } = at(event);
    if (stroke && endStroke()) return;
    const found = pickPrincipal(x, y, 14);
    state.kept = found >= 0;
    show(found, 0);
  });
  principal.box.addEventListener("pointercancel", cancelStroke);
  principal.box.addEventListener("pointerleave", () => { if (!state.kept && !stroke) show(-1, 0); });
}
