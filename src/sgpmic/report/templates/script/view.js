function homeView() {
  const [x0, x1, y0, y1] = homeBox();
  let sx = innerWidth() / (x1 - x0), sy = innerHeight() / (y1 - y0);
  if (map.plane) sx = sy = Math.min(sx, sy); // distances mean the same both ways
  return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, sx, sy };
}

const sharpRatio = () => Math.min(window.devicePixelRatio || 1, 2);
let sharpMs = 0; // what the last drawing at full sharpness took
let sharpen = 0;

function setRatio(ratio) {
  size.ratio = ratio;
  for (const one of [canvas, overlay]) {
    one.width = Math.round(size.width * ratio);
    one.height = Math.round(size.height * ratio);
  }
  sizePrincipal();
}

/** While the view moves, a fine screen gets coarse pixels if fine ones take too long. */
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

/** Fit the canvases to their place; the view keeps its center and zoom. */
function resize() {
  const width = box.clientWidth;
  if (!width) return;
  const [x0, x1, y0, y1] = data.maps[0].home; // the picture keeps its size when others are shown
  const tall = map.plane ? ((y1 - y0) / (x1 - x0)) * (width - 58) + 50 : 0.5 * width;
  const height = Math.round(Math.min(Math.max(tall, Math.min(360, 0.75 * width)), 620, Math.max(window.innerHeight * 0.85, 320)));
  if (width === size.width && height === size.height) return;
  const zoomed = size.width ? view.sx / home.sx : 0;
  Object.assign(size, { width, height });
  box.style.height = height + "px";
  setRatio(sharpRatio());
  stamps.clear();
  home = homeView();
  if (zoomed) { view.sx = home.sx * zoomed; view.sy = home.sy * zoomed; } else { Object.assign(view, home); }
  changed();
}
