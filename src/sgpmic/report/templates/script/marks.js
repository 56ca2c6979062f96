// The latent dimensions shown: of three or more, any two, and the view can be rotated about the
// vertical axis to show a third.
const places = unpack(data.places);
const nDimensions = places.length / n;
const dimension = (k) => places.subarray(k * n, (k + 1) * n);
const turn = { angle: 0, playing: false, then: 0 };
let map, X, Y, boundaries;

function setMap(index) {
  map = data.maps[index];
  X = dimension(map.axes[0]);
  Y = dimension(map.axes[1]);
  boundaries = unpack(map.boundaries);
}

setMap(0);

const thirdDimension = () => [0, 1, 2].find((k) => !map.axes.includes(k));

/** The axis label. */
function axisName(k) {
  const own = map.axes[k] + 1;
  if (k === 1 || turn.angle === 0) return `latent dimension ${own}`;
  return `latent dimensions ${own} and ${thirdDimension() + 1}, turned by ${turn.angle}°`.replace("-", "−");
}

/** The center of rotation, and the radius that contains all rows at any angle. */
function turningCircle() {
  const x = dimension(map.axes[0]), z = dimension(thirdDimension());
  const [low, high] = extremes(z);
  const cx = (map.home[0] + map.home[1]) / 2, cz = (low + high) / 2;
  let radius = 0;
  for (let i = 0; i < n; i++) radius = Math.max(radius, Math.hypot(x[i] - cx, z[i] - cz));
  return { cx, cz, radius: 1.05 * radius };
}

/** Bounds of the home view: x0, x1, y0, y1. */
function homeBox() {
  if (turn.angle === 0) return map.home;
  const { cx, radius } = turningCircle();
  return [cx - radius, cx + radius, map.home[2], map.home[3]];
}

function choosePlane(index) {
  stopTurning();
  setMap(index);
  turn.angle = 0;
  $("turn").value = "0";
  paintDensity();
  home = homeView();
  resetView();
}

function turnTo(degrees) {
  const wasFlat = turn.angle === 0;
  turn.angle = degrees;
  X = dimension(map.axes[0]);
  if (degrees !== 0) {
    const x = X, z = dimension(thirdDimension());
    const { cx, cz } = turningCircle();
    const cos = Math.cos((degrees * Math.PI) / 180), sin = Math.sin((degrees * Math.PI) / 180);
    X = new Float32Array(n);
    for (let i = 0; i < n; i++) X[i] = cx + cos * (x[i] - cx) + sin * (z[i] - cz);
  }
  if (wasFlat !== (degrees === 0)) { home = homeView(); Object.assign(view, home); }
  changed();
}

function stopTurning() {
  turn.playing = false;
  $("turn-play").setAttribute("aria-pressed", "false");
}

/** Rotate by 30 degrees per second until the button is pressed again. */
function playTurning() {
  turn.playing = !turn.playing;
  $("turn-play").setAttribute("aria-pressed", String(turn.playing));
  turn.then = performance.now();
  const step = (now) => {
    if (!turn.playing) return;
    const passed = Math.round((now - turn.then) * 0.03);
    if (passed > 0) {
      turn.then = now;
      const degrees = ((turn.angle + passed + 180) % 360) - 180;
      $("turn").value = String(degrees);
      turnTo(degrees);
    }
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function connectPlanes() {
  if (nDimensions < 3) return;
  const select = $("plane");
  data.maps.forEach(({ axes: [a, b] }, k) => select.append(option(String(k), `${a + 1} and ${b + 1}`)));
  select.addEventListener("change", () => choosePlane(Number(select.value)));
  $("turn").addEventListener("input", (event) => { stopTurning(); turnTo(Number(event.target.value)); });
  $("turn-play").addEventListener("click", playTurning);
  $("planes").hidden = false;
}

/** The latent plot as a surface: what marks, rings and selections need in order to be drawn on it. */
function latentSurface() {
  const frame = { left: MARGIN.left, top: MARGIN.top, right: size.width - MARGIN.right, bottom: size.height - MARGIN.bottom };
  return { box, overPen, x: X, y: Y, toX, toY, scale: { x: view.sx, y: view.sy }, frame, ratio: size.ratio };
}

let theme = {};

function rgb(hex) {
  const k = parseInt(hex.trim().slice(1), 16);
  return [k >> 16, (k >> 8) & 255, k & 255];
}

/** Read the colors from the style sheet, where alone they are defined. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  const clusters = [];
  for (let k = 0; get("--c" + k); k++) clusters.push(get("--c" + k));
  const words = {};
  for (const name of ["ink", "soft", "page", "grid", "line", "shade", "faded"]) words[name] = get("--" + name);
  const lightness = rgb(words.page).reduce((a, b) => a + b) / 3;
  theme = { ...words, clusters, dark: lightness < 128, scale: colorScale(lightness < 128) };
  paintDensity();
}

// Nine stops of viridis.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(rgb);

/** 256 colors: viridis without the end that has too little contrast with the page. */
function colorScale(dark) {
  const [from, to] = dark ? [0.18, 1] : [0, 0.9];
  const colors = new Uint8Array(768);
  for (let k = 0; k < 256; k++) {
    const at = (from + ((to - from) * k) / 255) * (VIRIDIS.length - 1);
    const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
    for (let c = 0; c < 3; c++) {
      colors[3 * k + c] = VIRIDIS[low][c] + (at - low) * (VIRIDIS[low + 1][c] - VIRIDIS[low][c]);
    }
  }
  return colors;
}

const MISSING = "(missing)";
const LABEL_COLORS = 12; // the most frequent levels; all others are gray
const colors = new Uint8Array(3 * n);
const opacity = new Uint16Array(n); // 0 to 256
const active = new Uint8Array(n);

const featureOf = (key) => (key.startsWith("feature:") ? Number(key.slice(8)) : -1);

/** The categorical column selected for coloring, if any. */
function groupOf(key) {
  if (key === "given") return groups[0];
  return key.startsWith("category:") ? groups[1 + Number(key.slice(9))] : null;
}

/** A function from row i to its position on the color scale, 0 to 255. */
function scaleFor(key) {
  if (key === "certainty") {
    const low = 1 / data.nClusters;
    return (i) => (255 * (certaintyOf(i) - low)) / Math.max(1 - low, 1e-9);
  }
  const feature = featureOf(key);
  const [low, high] = data.values.range[feature];
  // Halved because high - low may overflow.
  const span = high / 2 - low / 2;
  return (i) => (span > 0 ? (255 * (valueOf(i, feature) / 2 - low / 2)) / span : 128 + 0 * valueOf(i, feature));
}

function recolor() {
  const dense = n < 2000 ? 235 : n < 20000 ? 185 : 140;
  const group = groupOf(state.color);
  const palette = theme.clusters.map(rgb);
  const gray = rgb(theme.faded);
  const scaled = group || state.color === "cluster" ? null : scaleFor(state.color);
  for (let i = 0; i < n; i++) {
    active[i] = isActive(i) ? 1 : 0;
    let r, g, b;
    if (scaled) {
      const at = scaled(i);
      const k = 3 * Math.min(Math.max(Math.round(at), 0), 255);
      [r, g, b] = Number.isNaN(at) ? gray : theme.scale.subarray(k, k + 3);
    } else {
      const k = group ? group.codes[i] : clusterOf(i);
      [r, g, b] = group && (k >= LABEL_COLORS || group.names[k] === MISSING) ? gray : palette[k];
    }
    // Opacity shows certainty only when rows are colored by cluster.
    opacity[i] = state.color === "cluster" ? dense * (0.4 + 0.6 * certaintyOf(i)) : dense;
    if (!active[i]) { [r, g, b] = gray; opacity[i] = n < 2000 ? 80 : n < 20000 ? 48 : 24; }
    colors[3 * i] = r; colors[3 * i + 1] = g; colors[3 * i + 2] = b;
  }
  drawLegend();
  redraw();
}

// The eight shapes, read from the legend's buttons.
const SHAPES = [];
for (const svg of document.querySelectorAll("#clusters-legend .swatch")) {
  SHAPES[Number(svg.dataset.shape)] = svg.querySelector("path").getAttribute("d");
}
const stamps = new Map();

/** Antialiased coverage of a shape: dx, dy (device pixels) and weight of each pixel. */
function coverage(shape, radius, margin) {
  const reach = Math.ceil(radius + margin) + 1;
  const side = 2 * reach + 1;
  const small = document.createElement("canvas");
  small.width = small.height = side;
  const brush = small.getContext("2d");
  brush.translate(reach + 0.5, reach + 0.5);
  brush.scale(radius / 6.2, radius / 6.2);
  const path = new Path2D(SHAPES[shape]);
  brush.fill(path);
  if (margin) { brush.lineWidth = (2 * margin * 6.2) / radius; brush.lineJoin = "round"; brush.stroke(path); }
  const pixels = brush.getImageData(0, 0, side, side).data;
  const found = [];
  for (let k = 0; k < side * side; k++) {
    const a = pixels[4 * k + 3];
    if (a > 6) found.push((k % side) - reach, Math.floor(k / side) - reach, a);
  }
  return found;
}

/** Byte offsets and weights of a mark in the pixels of a canvas of this width; cached. */
function stamp(shape, radius, width, rim) {
  const key = `${shape} ${radius} ${width} ${rim}`;
  if (!stamps.has(key)) {
    const list = coverage(shape, radius, rim);
    const count = list.length / 3;
    const offsets = new Int32Array(count);
    const weights = new Uint16Array(count);
    for (let k = 0; k < count; k++) {
      offsets[k] = 4 * (list[3 * k + 1] * width + list[3 * k]);
      weights[k] = list[3 * k + 2] + 1;
    }
    stamps.set(key, { offsets, weights });
  }
  return stamps.get(key);
}

/** Alpha-blend a mark into the pixels. */
function press(pixels, at, mark, r, g, b, alpha) {
  const { offsets, weights } = mark;
  for (let k = 0; k < offsets.length; k++) {
    const a = (weights[k] * alpha) >> 8;
    const p = at + offsets[k];
    pixels[p] += ((r - pixels[p]) * a) >> 8;
    pixels[p + 1] += ((g - pixels[p + 1]) * a) >> 8;
    pixels[p + 2] += ((b - pixels[p + 2]) * a) >> 8;
  }
}

const deviceX = new Int32Array(n);
const deviceY = new Int32Array(n);

/** Project all rows to device pixels, x = -1 outside the frame; return how many are inside. */
function project(surface) {
  const { x, y, frame, ratio } = surface;
  const left = frame.left * ratio, right = frame.right * ratio;
  const upper = frame.top * ratio, lower = frame.bottom * ratio;
  // The projection is affine: origin and scale determine it.
  const ox = surface.toX(0) * ratio, oy = surface.toY(0) * ratio;
  const kx = surface.scale.x * ratio, ky = surface.scale.y * ratio;
  let seen = 0;
  for (let i = 0; i < n; i++) {
    const px = ox + x[i] * kx;
    const py = oy - y[i] * ky;
    if (px < left || px > right || py < upper || py > lower) { deviceX[i] = -1; continue; }
    deviceX[i] = px; deviceY[i] = py;
    seen++;
  }
  return seen;
}

/** Radius of marks in CSS pixels: the fewer visible rows, the larger. */
const radiusFor = (seen) => Math.min(Math.max(8 - 1.3 * Math.log10(Math.max(seen, 1)), 1.5), 5);

function stampPoints(pixels, width, surface) {
  const ratio = surface.ratio;
  const radius = (Math.round(4 * radiusFor(project(surface))) / 4) * ratio;
  const rim = radius >= 3 * ratio ? 0.8 * ratio : 0;
  const count = SHAPES.length;
  // Shapes are indistinguishable at this size: draw circles, as the legend says.
  const shapes = radius < 2 * ratio ? 1 : count;
  const marks = [], rims = [];
  for (let s = 0; s < count; s++) {
    marks.push(stamp(shapes > 1 ? s : 0, radius, width, 0));
    rims.push(rim ? stamp(s, radius, width, rim) : null);
  }
  const page = rgb(theme.page);
  for (let pass = 0; pass < 2; pass++) { // faded rows first, below the others
    for (let i = 0; i < n; i++) {
      if (active[i] !== pass || deviceX[i] < 0) continue;
      const at = 4 * (deviceY[i] * width + deviceX[i]);
      const shape = clusterOf(i) % 8;
      if (rim && pass) press(pixels, at, rims[shape], page[0], page[1], page[2], opacity[i]);
      press(pixels, at, marks[shape], colors[3 * i], colors[3 * i + 1], colors[3 * i + 2], opacity[i]);
    }
  }
}
