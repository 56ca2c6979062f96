// The same eight shapes as in the legend's buttons, read from there.
const SHAPES = [];
for (const svg of document.querySelectorAll("#clusters-legend .swatch")) {
  SHAPES[Number(svg.dataset.shape)] = svg.querySelector("path").getAttribute("d");
}
const stamps = new Map();

/** Coverage of a shape of some radius, in device pixels: lists of dx, dy and weight. */
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

/** Byte offsets and weights of a mark, for a canvas of this width. */
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

/** Mix a color into the pixels under a mark. */
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

/** Put all rows in device pixels, those out of sight at x = -1; return how many are in sight. */
function project(surface) {
  const { x, y, frame, ratio } = surface;
  const left = frame.left * ratio, right = frame.right * ratio;
  const upper = frame.top * ratio, lower = frame.bottom * ratio;
  // Places are linear in coordinates, so two of them say it all.
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

/** Fewer rows in sight, larger marks; in CSS pixels. */
const radiusFor = (seen) => Math.min(Math.max(8 - 1.3 * Math.log10(Math.max(seen, 1)), 1.5), 5);

function stampPoints(pixels, width, surface) {
  const ratio = surface.ratio;
  const radius = (Math.round(4 * radiusFor(project(surface))) / 4) * ratio;
  const rim = radius >= 3 * ratio ? 0.8 * ratio : 0;
  const count = SHAPES.length;
  // Tiny marks all look round; say so rather than pretend.
  const shapes = radius < 2 * ratio ? 1 : count;
  const marks = [], rims = [];
  for (let s = 0; s < count; s++) {
    marks.push(stamp(shapes > 1 ? s : 0, radius, width, 0));
    rims.push(rim ? stamp(s, radius, width, rim) : null);
  }
  const page = rgb(theme.page);
  for (let pass = 0; pass < 2; pass++) { // faded rows lie under the others
    for (let i = 0; i < n; i++) {
      if (active[i] !== pass || deviceX[i] < 0) continue;
      const at = 4 * (deviceY[i] * width + deviceX[i]);
      const shape = clusterOf(i) % 8;
      if (rim && pass) press(pixels, at, rims[shape], page[0], page[1], page[2], opacity[i]);
      press(pixels, at, marks[shape], colors[3 * i], colors[3 * i + 1], colors[3 * i + 2], opacity[i]);
    }
  }
}
