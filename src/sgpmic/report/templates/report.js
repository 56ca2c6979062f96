"use strict";
/* The latent space on a canvas. No library: points are stamped into the canvas's own pixels, which
   needs no WebGL and takes a few hundredths of a second for 100 000 rows on one slow core.

   Everything that comes from the data is shown with textContent, never as HTML. */
(function () {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("payload").textContent);

  // ------------------------------------------------------------------ data
  const ARRAYS = { float32: Float32Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

  function unpack(packed) {
    const text = atob(packed.base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new ARRAYS[packed.type](bytes.buffer); // little-endian, like every browser's machine
  }

  const n = data.n;
  const map = data.map;
  const places = unpack(map.points);
  const X = places.subarray(0, n);
  const Y = places.subarray(n);
  const boundaries = unpack(map.boundaries);
  const top = data.memberships.top;
  const topClusters = unpack(data.memberships.clusters);
  const topChances = unpack(data.memberships.chances);
  const rowNumbers = data.rows ? unpack(data.rows) : null;
  const valueCodes = unpack(data.values.codes);
  // Columns of words: the given labels, if there are any, and the categories.
  const groups = [data.given, ...data.categories].map((column) => column && { ...column, codes: unpack(column.codes) });

  const clusterOf = (i) => topClusters[i * top];
  const certaintyOf = (i) => topChances[i * top] / 65535;
  const rowOf = (i) => (rowNumbers ? rowNumbers[i] : i);
  const nameOf = (i) => (data.ids && data.ids[i]) || "row " + (rowOf(i) + 1);

  function valueOf(i, feature) {
    const code = valueCodes[feature * n + i];
    if (code === data.values.missing) return NaN;
    return data.values.low ? data.values.low[feature] + code * data.values.step[feature] : code;
  }

  const levelOf = (i, group) => group.names[group.codes[i]];

  /** Where a row of the table is among those drawn, -1 if it is not. */
  function indexOfRow(row) {
    if (!rowNumbers) return row >= 0 && row < n ? row : -1;
    return rowNumbers.indexOf(row);
  }

  // ------------------------------------------------------------------ words
  function number(value, digits) {
    if (!Number.isFinite(value)) return "–";
    const short = Number(value.toPrecision(digits || 6));
    const size = Math.abs(short);
    const text = size !== 0 && (size >= 1e9 || size < 1e-4) ? short.toExponential() : String(short);
    return text.replace(/-/g, "−");
  }

  /** A value of a feature in words; dates are days since 1970. */
  function valueWords(value, feature, digits) {
    if (!Number.isFinite(value) || !data.dates.includes(feature)) return number(value, digits);
    return new Date(Math.round(value) * 864e5).toISOString().slice(0, 10);
  }

  function percent(share) {
    if (share >= 0.9995 && share < 1) return "> 99.9 %";
    if (share > 0 && share < 0.0005) return "< 0.1 %";
    return (100 * share).toFixed(1) + " %";
  }

  function sentence(i) {
    let words = `${nameOf(i)}: cluster ${clusterOf(i)}, certainty ${percent(certaintyOf(i))}`;
    if (groups[0]) words += `, ${groups[0].name} ${levelOf(i, groups[0])}`;
    const some = Math.min(data.features.length, 4);
    for (let f = 0; f < some; f++) words += `, ${data.features[f]} ${valueWords(valueOf(i, f), f)}`;
    for (const group of groups.slice(1, 3)) words += `, ${group.name} ${levelOf(i, group)}`;
    return words + ".";
  }

  // ------------------------------------------------------------------ state
  const box = $("canvas-box");
  const canvas = $("points");
  const overlay = $("overlay");
  // The pixels are read back at every redraw: keep them in main memory.
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const overPen = overlay.getContext("2d");
  const state = {
    colour: "cluster", // or certainty, given, feature:<k>, category:<k>
    selected: new Set(), // clusters; empty: all
    layers: { outlines: true, density: true, boundaries: true },
    row: -1, // index of the row that is shown
    kept: false, // whether it stays when the pointer moves on
    frames: 0,
    redrawMs: 0,
  };
  const view = { x: 0, y: 0, sx: 1, sy: 1 }; // centre; pixels a unit
  const size = { width: 0, height: 0, ratio: 1 };
  const MARGIN = { left: map.plane ? 46 : 16, right: 12, top: 12, bottom: 38 };
  let home = { x: 0, y: 0, sx: 1, sy: 1 };
  let waiting = false;

  const isActive = (i) => state.selected.size === 0 || state.selected.has(clusterOf(i));
  const innerWidth = () => size.width - MARGIN.left - MARGIN.right;
  const innerHeight = () => size.height - MARGIN.top - MARGIN.bottom;
  const toX = (x) => MARGIN.left + innerWidth() / 2 + (x - view.x) * view.sx;
  const toY = (y) => MARGIN.top + innerHeight() / 2 - (y - view.y) * view.sy;
  const fromX = (px) => view.x + (px - MARGIN.left - innerWidth() / 2) / view.sx;
  const fromY = (py) => view.y - (py - MARGIN.top - innerHeight() / 2) / view.sy;

  // ------------------------------------------------------------------ colours
  let theme = {};

  function rgb(hex) {
    const k = parseInt(hex.trim().slice(1), 16);
    return [k >> 16, (k >> 8) & 255, k & 255];
  }

  /** Read the colours from the style sheet, the only place where they are kept. */
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    const clusters = [];
    for (let k = 0; get("--c" + k); k++) clusters.push(get("--c" + k));
    const words = {};
    for (const name of ["ink", "soft", "page", "grid", "line", "shade", "faded"]) words[name] = get("--" + name);
    const lightness = rgb(words.page).reduce((a, b) => a + b) / 3;
    theme = { ...words, clusters, dark: lightness < 128, scale: colourScale(lightness < 128) };
    paintDensity();
  }

  // Viridis at nine places.
  const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(rgb);

  /** 256 colours: viridis without the end that is lost on the page. */
  function colourScale(dark) {
    const [from, to] = dark ? [0.18, 1] : [0, 0.9];
    const colours = new Uint8Array(768);
    for (let k = 0; k < 256; k++) {
      const at = (from + ((to - from) * k) / 255) * (VIRIDIS.length - 1);
      const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
      for (let c = 0; c < 3; c++) {
        colours[3 * k + c] = VIRIDIS[low][c] + (at - low) * (VIRIDIS[low + 1][c] - VIRIDIS[low][c]);
      }
    }
    return colours;
  }

  const MISSING = "(missing)";
  const LABEL_COLOURS = 12; // the commonest labels have their own; the rest share a grey
  const colours = new Uint8Array(3 * n);
  const opacity = new Uint16Array(n); // 0 to 256
  const active = new Uint8Array(n);

  const featureOf = (key) => (key.startsWith("feature:") ? Number(key.slice(8)) : -1);

  /** Return the column of words that a choice of colours stands for, if it is one. */
  function groupOf(key) {
    if (key === "given") return groups[0];
    return key.startsWith("category:") ? groups[1 + Number(key.slice(9))] : null;
  }

  /** Return the function that puts number i on the scale of 0 to 255. */
  function scaleFor(key) {
    if (key === "certainty") {
      const low = 1 / data.nClusters;
      return (i) => (255 * (certaintyOf(i) - low)) / Math.max(1 - low, 1e-9);
    }
    const feature = featureOf(key);
    const [low, high] = data.values.range[feature];
    // Halves: the range of huge numbers may overflow.
    const span = high / 2 - low / 2;
    return (i) => (span > 0 ? (255 * (valueOf(i, feature) / 2 - low / 2)) / span : 128 + 0 * valueOf(i, feature));
  }

  function recolour() {
    const dense = n < 2000 ? 235 : n < 20000 ? 185 : 140;
    const group = groupOf(state.colour);
    const palette = theme.clusters.map(rgb);
    const grey = rgb(theme.faded);
    const scaled = group || state.colour === "cluster" ? null : scaleFor(state.colour);
    for (let i = 0; i < n; i++) {
      active[i] = isActive(i) ? 1 : 0;
      let r, g, b;
      if (scaled) {
        const at = scaled(i);
        const k = 3 * Math.min(Math.max(Math.round(at), 0), 255);
        [r, g, b] = Number.isNaN(at) ? grey : theme.scale.subarray(k, k + 3);
      } else {
        const k = group ? group.codes[i] : clusterOf(i);
        [r, g, b] = group && (k >= LABEL_COLOURS || group.names[k] === MISSING) ? grey : palette[k];
      }
      // Doubt fades a row, where colour does not say it already.
      opacity[i] = state.colour === "cluster" ? dense * (0.4 + 0.6 * certaintyOf(i)) : dense;
      if (!active[i]) { [r, g, b] = grey; opacity[i] = n < 2000 ? 80 : n < 20000 ? 48 : 24; }
      colours[3 * i] = r; colours[3 * i + 1] = g; colours[3 * i + 2] = b;
    }
    drawLegend();
    redraw();
  }

  // ------------------------------------------------------------------ marks
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

  /** Mix a colour into the pixels under a mark. */
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
  function project() {
    const q = size.ratio;
    const kx = view.sx * q, ky = view.sy * q;
    const ox = toX(0) * q, oy = toY(0) * q;
    const left = MARGIN.left * q, right = (size.width - MARGIN.right) * q;
    const upper = MARGIN.top * q, lower = (size.height - MARGIN.bottom) * q;
    let seen = 0;
    for (let i = 0; i < n; i++) {
      const px = ox + X[i] * kx;
      const py = oy - Y[i] * ky;
      if (px < left || px > right || py < upper || py > lower) { deviceX[i] = -1; continue; }
      deviceX[i] = px; deviceY[i] = py;
      seen++;
    }
    return seen;
  }

  /** Fewer rows in sight, larger marks; in CSS pixels. */
  const radiusFor = (seen) => Math.min(Math.max(8 - 1.3 * Math.log10(Math.max(seen, 1)), 1.5), 5);

  function stampPoints(pixels, width) {
    const radius = (Math.round(4 * radiusFor(project())) / 4) * size.ratio;
    const rim = radius >= 3 * size.ratio ? 0.8 * size.ratio : 0;
    const count = SHAPES.length;
    // Tiny marks all look round; say so rather than pretend.
    const shapes = radius < 2 * size.ratio ? 1 : count;
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
        press(pixels, at, marks[shape], colours[3 * i], colours[3 * i + 1], colours[3 * i + 2], opacity[i]);
      }
    }
  }

  // ------------------------------------------------------------------ drawing
  const densityImage = document.createElement("canvas");

  function paintDensity() {
    const [rows, columns] = map.shape;
    const shade = unpack(map.density);
    const [r, g, b] = rgb(theme.shade);
    densityImage.width = columns;
    densityImage.height = rows;
    const brush = densityImage.getContext("2d");
    const image = brush.createImageData(columns, rows);
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        const p = 4 * ((rows - 1 - y) * columns + x); // images grow downwards
        image.data[p] = r; image.data[p + 1] = g; image.data[p + 2] = b;
        image.data[p + 3] = shade[y * columns + x] * 0.4;
      }
    }
    brush.putImageData(image, 0, 0);
  }

  function drawDensity() {
    const [x0, x1, y0, y1] = map.extent;
    // A pixel of the image stands for the area around a grid point: half a cell more each way.
    const [rows, columns] = map.shape;
    const dx = (x1 - x0) / (columns - 1) / 2, dy = (y1 - y0) / (rows - 1) / 2;
    const left = toX(x0 - dx), upper = toY(y1 + dy);
    pen.imageSmoothingEnabled = true;
    pen.drawImage(densityImage, left, upper, toX(x1 + dx) - left, toY(y0 - dy) - upper);
  }

  function ticks(low, high, about) {
    const raw = (high - low) / about;
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw * 0.75);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) {
      found.push([k * step, (k * step).toFixed(digits).replace("-", "−")]);
    }
    return found;
  }

  function drawGrid(words) {
    const right = size.width - MARGIN.right, lower = size.height - MARGIN.bottom;
    pen.lineWidth = 1;
    pen.strokeStyle = theme.grid;
    pen.fillStyle = theme.soft;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (const [x, text] of ticks(fromX(MARGIN.left), fromX(right), Math.max(innerWidth() / 75, 4))) {
      const px = Math.round(toX(x)) + 0.5;
      if (!words) { pen.beginPath(); pen.moveTo(px, MARGIN.top); pen.lineTo(px, lower); pen.stroke(); continue; }
      if (px > MARGIN.left + 6 && px < right - 8) pen.fillText(text, px, lower + 16);
    }
    if (!map.plane) return;
    pen.textAlign = "right";
    for (const [y, text] of ticks(fromY(lower), fromY(MARGIN.top), Math.max(innerHeight() / 65, 3))) {
      const py = Math.round(toY(y)) + 0.5;
      if (!words) { pen.beginPath(); pen.moveTo(MARGIN.left, py); pen.lineTo(right, py); pen.stroke(); continue; }
      if (py > MARGIN.top + 4 && py < lower - 2) pen.fillText(text, MARGIN.left - 6, py + 4);
    }
  }

  /** Wipe what went over the margins and write the axes there. */
  function drawFrame() {
    const right = size.width - MARGIN.right, lower = size.height - MARGIN.bottom;
    pen.fillStyle = theme.page;
    pen.fillRect(0, 0, size.width, MARGIN.top);
    pen.fillRect(0, lower, size.width, MARGIN.bottom);
    pen.fillRect(0, 0, MARGIN.left, size.height);
    pen.fillRect(right, 0, MARGIN.right, size.height);
    pen.strokeStyle = theme.line;
    pen.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, innerWidth() - 1, innerHeight() - 1);
    drawGrid(true);
    pen.fillStyle = theme.ink;
    pen.textAlign = "center";
    pen.fillText("latent dimension 1", MARGIN.left + innerWidth() / 2, size.height - 6);
    if (!map.plane) return;
    pen.save();
    pen.translate(12, MARGIN.top + innerHeight() / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText("latent dimension 2", 0, 0);
    pen.restore();
  }

  function clipToPlot() {
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top, innerWidth(), innerHeight());
    pen.clip();
  }

  function drawBoundaries() {
    pen.beginPath();
    for (let k = 0; k < boundaries.length; k += 4) {
      pen.moveTo(toX(boundaries[k]), toY(boundaries[k + 1]));
      pen.lineTo(toX(boundaries[k + 2]), toY(boundaries[k + 3]));
    }
    pen.strokeStyle = theme.ink;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function drawOutlines() {
    map.outlines.forEach((line, m) => {
      if (!data.sizes[m]) return; // without rows it says nothing
      pen.globalAlpha = state.selected.size && !state.selected.has(m) ? 0.2 : 1;
      pen.beginPath();
      line.forEach(([x, y], k) => (k ? pen.lineTo(toX(x), toY(y)) : pen.moveTo(toX(x), toY(y))));
      pen.lineWidth = 4;
      pen.strokeStyle = theme.page;
      pen.stroke();
      pen.lineWidth = 2;
      pen.strokeStyle = state.colour === "cluster" ? theme.clusters[m] : theme.ink;
      pen.stroke();
    });
    drawNumbers();
    pen.globalAlpha = 1;
  }

  /** The first of some places that is in sight and on no other number; the very first if none is. */
  function freePlace(candidates, taken) {
    const inPixels = candidates.map(([x, y]) => [toX(x), toY(y)]);
    const free = ([px, py]) =>
      px > MARGIN.left + 10 && px < size.width - MARGIN.right - 10 &&
      py > MARGIN.top + 10 && py < size.height - MARGIN.bottom - 10 &&
      taken.every(([x, y]) => Math.hypot(px - x, py - y) > 22);
    return inPixels.find(free) || inPixels[0];
  }

  /** The clusters' numbers: shapes and colours repeat where there are many. */
  function drawNumbers() {
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const taken = [];
    map.numbers.forEach((first, m) => {
      if (!data.sizes[m]) return;
      pen.globalAlpha = state.selected.size && !state.selected.has(m) ? 0.3 : 1;
      const [px, py] = freePlace([first, ...map.outlines[m]], taken);
      taken.push([px, py]);
      pen.beginPath();
      pen.arc(px, py, m < 100 ? 10 : 13, 0, 7);
      pen.fillStyle = theme.page;
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = state.colour === "cluster" ? theme.clusters[m] : theme.ink;
      pen.stroke();
      pen.fillStyle = theme.ink;
      pen.fillText(String(m), px, py + 0.5);
    });
  }

  function draw() {
    const begun = performance.now();
    pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    pen.fillStyle = theme.page;
    pen.fillRect(0, 0, size.width, size.height);
    if (state.layers.density) drawDensity();
    drawGrid(false);
    const image = pen.getImageData(0, 0, canvas.width, canvas.height);
    stampPoints(image.data, canvas.width);
    pen.putImageData(image, 0, 0);
    pen.save();
    clipToPlot();
    if (state.layers.boundaries) drawBoundaries();
    if (state.layers.outlines) drawOutlines();
    pen.restore();
    drawFrame();
    drawRing();
    state.redrawMs = performance.now() - begun;
    if (size.ratio > 1) sharpMs = state.redrawMs;
    state.frames++;
  }

  /** Draw at the next frame, once however often this is called. */
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { if (waiting) { waiting = false; draw(); } });
  }

  /** The ring around the row that is shown, on a canvas of its own: moving it costs nothing. */
  function drawRing() {
    overPen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    overPen.clearRect(0, 0, size.width, size.height);
    if (state.row < 0) return;
    overPen.beginPath();
    overPen.rect(MARGIN.left - 10, MARGIN.top - 10, innerWidth() + 20, innerHeight() + 20);
    overPen.save();
    overPen.clip();
    for (const [colour, width] of [[theme.page, 5], [theme.ink, 2.2]]) {
      overPen.beginPath();
      overPen.arc(toX(X[state.row]), toY(Y[state.row]), 8.5, 0, 7);
      overPen.strokeStyle = colour;
      overPen.lineWidth = width;
      overPen.stroke();
    }
    overPen.restore();
  }

  // ------------------------------------------------------------------ legend of colours
  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function drawLegend() {
    const legend = $("colour-legend");
    legend.replaceChildren();
    $("explorer").classList.toggle("plain-colour", state.colour !== "cluster");
    if (state.colour === "cluster") {
      const small = radiusFor(n) < 2 ? " Marks show their shapes when you zoom in." : "";
      legend.append(element("span", "", "Doubtful rows are fainter." + small));
    } else if (groupOf(state.colour)) {
      legendOfLabels(legend, groupOf(state.colour));
    } else {
      legendOfScale(legend);
    }
  }

  function legendOfLabels(legend, group) {
    group.names.slice(0, LABEL_COLOURS).forEach((name, k) => {
      const item = element("span");
      const dot = element("span", "dot");
      dot.style.background = name === MISSING ? theme.faded : theme.clusters[k];
      item.append(dot, element("bdi", "", shorten(name, 40) || "(empty)"));
      legend.append(item);
    });
    const more = group.names.length - LABEL_COLOURS;
    if (more > 0) legend.append(element("span", "", `${more} rarer ones are grey`));
  }

  function legendOfScale(legend) {
    const feature = featureOf(state.colour);
    const certainty = state.colour === "certainty";
    const [low, high] = certainty ? [1 / data.nClusters, 1] : data.values.range[feature];
    const bar = element("span", "scale");
    const stops = [];
    for (let k = 0; k < 256; k += 15) stops.push(`rgb(${theme.scale.slice(3 * k, 3 * k + 3).join(",")})`);
    bar.style.background = `linear-gradient(90deg, ${stops.join(",")})`;
    const name = certainty ? "certainty" : shorten(data.features[feature], 40);
    legend.append(element("bdi", "", name));
    let gaps = 0;
    for (let i = 0; i < n && !certainty; i++) gaps += Number.isNaN(valueOf(i, feature));
    if (low < high) {
      const ends = certainty ? [percent(low), "100 %"] : ["≤ " + valueWords(low, feature, 4), "≥ " + valueWords(high, feature, 4)];
      legend.append(element("span", "", ends[0]), bar, element("span", "", ends[1]));
    } else if (gaps < n) {
      legend.append(element("span", "", "is always " + valueWords(low, feature, 4)));
    }
    if (gaps) legend.append(element("span", "", `${gaps} missing, in grey`));
  }

  const shorten = (text, longest) => (text.length > longest ? text.slice(0, longest - 1) + "…" : text);

  // ------------------------------------------------------------------ finding rows
  const cells = buildCells();

  /** Sort rows into a grid of about four to a cell, so that few are looked at under the pointer. */
  function buildCells() {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (let i = 0; i < n; i++) {
      x0 = Math.min(x0, X[i]); x1 = Math.max(x1, X[i]);
      y0 = Math.min(y0, Y[i]); y1 = Math.max(y1, Y[i]);
    }
    const side = Math.max(1, Math.min(512, Math.round(Math.sqrt(n / 4))));
    const kx = side / Math.max(x1 - x0, 1e-30), ky = side / Math.max(y1 - y0, 1e-30);
    const clamp = (k) => Math.min(Math.max(Math.floor(k), 0), side - 1);
    const column = (x) => clamp((x - x0) * kx), line = (y) => clamp((y - y0) * ky);
    const starts = new Uint32Array(side * side + 1);
    for (let i = 0; i < n; i++) starts[line(Y[i]) * side + column(X[i]) + 1]++;
    for (let k = 0; k < side * side; k++) starts[k + 1] += starts[k];
    const next = starts.slice();
    const order = new Uint32Array(n);
    for (let i = 0; i < n; i++) order[next[line(Y[i]) * side + column(X[i])]++] = i;
    return { side, column, line, starts, order };
  }

  /** The nearest row within reach of a place on the canvas, faded rows left out; -1 if none. */
  function pick(px, py, reach) {
    let best = -1, closest = reach * reach;
    const { side, column, line, starts, order } = cells;
    const c0 = column(fromX(px - reach)), c1 = column(fromX(px + reach));
    const l0 = line(fromY(py + reach)), l1 = line(fromY(py - reach));
    for (let l = l0; l <= l1; l++) {
      for (let k = starts[l * side + c0]; k < starts[l * side + c1 + 1]; k++) {
        const i = order[k];
        const dx = toX(X[i]) - px, dy = toY(Y[i]) - py;
        if (active[i] && dx * dx + dy * dy < closest) { closest = dx * dx + dy * dy; best = i; }
      }
    }
    return best;
  }

  /** The nearest row to the left, right, … of the one that is shown, preferring straight ahead. */
  function neighbour(dx, dy) {
    const from = state.row;
    let best = -1, least = Infinity;
    for (let i = 0; i < n; i++) {
      if (!active[i] || i === from) continue;
      const ax = (X[i] - X[from]) * view.sx, ay = -(Y[i] - Y[from]) * view.sy;
      const ahead = ax * dx + ay * dy, aside = Math.abs(ax * dy) + Math.abs(ay * dx);
      if (ahead <= 1e-6 || aside > ahead) continue;
      if (ahead + 2 * aside < least) { least = ahead + 2 * aside; best = i; }
    }
    return best;
  }

  /** The row nearest to the middle of the view: where the arrow keys begin. */
  function centralRow() {
    let best = -1, least = Infinity;
    for (let i = 0; i < n; i++) {
      if (!active[i]) continue;
      const distance = Math.hypot((X[i] - view.x) * view.sx, (Y[i] - view.y) * view.sy);
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }

  /** The next row in the table that is not faded. */
  function following(step) {
    for (let i = state.row + step; i >= 0 && i < n; i += step) if (active[i]) return i;
    return -1;
  }

  // ------------------------------------------------------------------ the row that is shown
  const MOST_VALUES = 60; // what a person may want to read through
  const valueCells = [];
  const levelCells = [];

  function pair(list, name, value) {
    const term = element("dt"), words = element("dd");
    term.append(element("bdi", "", name));
    words.append(element("bdi", "", value));
    list.append(term, words);
    return words.firstChild;
  }

  function buildValues() {
    const list = $("row-values");
    for (let f = 0; f < Math.min(data.features.length, MOST_VALUES); f++) {
      valueCells.push(pair(list, shorten(data.features[f], 60), ""));
    }
    const room = MOST_VALUES - valueCells.length;
    for (const group of groups.slice(1, 1 + room)) levelCells.push(pair(list, shorten(group.name, 60), ""));
    const more = data.features.length + data.categories.length - MOST_VALUES;
    if (more > 0) list.append(element("dt", "", `and ${more} more`));
  }

  function fillDetails(i) {
    $("row-body").hidden = i < 0;
    $("row-empty").hidden = i >= 0;
    const heading = $("row-name");
    heading.replaceChildren(element("bdi", "", i < 0 ? "No row chosen" : shorten(nameOf(i), 80)));
    if (i < 0) return;
    const facts = $("row-facts");
    facts.replaceChildren();
    if (data.ids) pair(facts, "row", String(rowOf(i) + 1));
    pair(facts, "cluster", String(clusterOf(i)));
    pair(facts, "certainty", percent(certaintyOf(i)));
    if (groups[0]) pair(facts, shorten(groups[0].name, 40), shorten(levelOf(i, groups[0]), 60));
    const chances = $("row-chances");
    chances.replaceChildren();
    for (let k = 0; k < top; k++) {
      pair(chances, "cluster " + topClusters[i * top + k], percent(topChances[i * top + k] / 65535));
    }
    valueCells.forEach((cell, f) => { cell.textContent = valueWords(valueOf(i, f), f); });
    levelCells.forEach((cell, k) => { cell.textContent = shorten(levelOf(i, groups[1 + k]), 60); });
  }

  let speaking = 0;

  /** Tell screen readers, after a pause so that a moving pointer does not make them stammer. */
  function speak(words, pause) {
    clearTimeout(speaking);
    speaking = setTimeout(() => { $("live").textContent = words; }, pause);
  }

  function placeTooltip(i) {
    const tip = $("tooltip");
    tip.hidden = i < 0;
    if (i < 0) return;
    tip.replaceChildren(element("bdi", "", shorten(nameOf(i), 60)));
    tip.append(element("div", "", `cluster ${clusterOf(i)}, ${percent(certaintyOf(i))}`));
    const px = toX(X[i]), py = toY(Y[i]);
    const inside = px > MARGIN.left - 1 && px < size.width && py > 0 && py < size.height;
    tip.hidden = !inside;
    const left = px + 14 + tip.offsetWidth > size.width ? px - 14 - tip.offsetWidth : px + 14;
    tip.style.left = Math.max(left, 2) + "px";
    tip.style.top = Math.min(Math.max(py - tip.offsetHeight - 8, 2), size.height - tip.offsetHeight - 2) + "px";
  }

  /** Show a row: ring, tooltip, panel and, for those who listen, a sentence. */
  function show(i, pause) {
    placeTooltip(i);
    if (i === state.row) return;
    state.row = i;
    fillDetails(i);
    drawRing();
    if (i >= 0) speak(sentence(i), pause);
  }

  /** Move the view, if need be, so that a row is well inside it. */
  function bringIntoView(i) {
    const px = toX(X[i]), py = toY(Y[i]), edge = 24;
    if (px < MARGIN.left + edge || px > size.width - MARGIN.right - edge) view.x = X[i];
    else if (py < MARGIN.top + edge || py > size.height - MARGIN.bottom - edge) view.y = Y[i];
    else return;
    if (py < MARGIN.top + edge || py > size.height - MARGIN.bottom - edge) view.y = Y[i];
    redraw();
  }

  function keep(i, pause) {
    state.kept = i >= 0;
    if (i >= 0) bringIntoView(i);
    show(i, pause || 0);
  }

  // ------------------------------------------------------------------ view
  function homeView() {
    const [x0, x1, y0, y1] = map.home;
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

  /** Fit the canvases to their place; the view keeps its centre and zoom. */
  function resize() {
    const width = box.clientWidth;
    if (!width) return;
    const [x0, x1, y0, y1] = map.home;
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

  // ------------------------------------------------------------------ mouse, touch, keyboard
  const pointers = new Map();
  let moved = 0;

  function placeIn(event) {
    const frame = box.getBoundingClientRect();
    return { x: event.clientX - frame.left - 1, y: event.clientY - frame.top - 1 };
  }

  function pressed(event) {
    if (event.button) return;
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

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) pan(-60 * arrow[0], -60 * arrow[1]);
    else if (arrow) moveTo(state.row < 0 || !active[state.row] ? centralRow() : neighbour(...arrow));
    else if (event.key === "PageDown") moveTo(following(1));
    else if (event.key === "PageUp") moveTo(state.row < 0 ? n - 1 : following(-1));
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-" || event.key === "_") zoom(1 / 1.4);
    else if (event.key === "0") resetView();
    else if (event.key === "Enter") keep(state.row, 0);
    else if (event.key === "Escape") keep(-1, 0);
    else return;
    event.preventDefault();
  }

  // ------------------------------------------------------------------ controls
  function fillColours() {
    const select = $("colour");
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
    speak(chosen.length ? `Emphasised: cluster ${chosen.join(", ")}.` : "All clusters are shown alike.", 0);
    recolour();
  }

  function toggleLayer(button, name) {
    state.layers[name] = !state.layers[name];
    button.setAttribute("aria-pressed", String(state.layers[name]));
    redraw();
  }

  /** Show a row that is named elsewhere on the page. */
  function visit(row) {
    const i = indexOfRow(row);
    if (i < 0) { speak("That row is not in the picture’s sample.", 0); return; }
    if (!isActive(i)) { state.selected.clear(); markSelection(); }
    keep(i, 100);
    box.scrollIntoView({ block: "nearest" });
    box.focus({ preventScroll: true });
  }

  /** Rows are found by their name, the beginning of it, or their number. */
  function find(words) {
    const wanted = words.trim().toLowerCase();
    if (!wanted) return;
    let found = -1;
    if (data.ids) {
      const names = data.ids.map((name) => name.toLowerCase());
      found = names.indexOf(wanted);
      if (found < 0) found = names.findIndex((name) => name.startsWith(wanted));
    }
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
    recolour();
  }

  /** Paper is white, whatever the screen. */
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
    $("colour").addEventListener("change", (event) => { state.colour = event.target.value; recolour(); });
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
    new ResizeObserver(resize).observe(box);
    preparePrint();
  }

  /** For tests and for scripts in the console: what is drawn, and where. */
  window.sgpmicReport = Object.freeze({
    state: () => ({
      n,
      colour: state.colour,
      selected: [...state.selected],
      layers: { ...state.layers },
      row: state.row < 0 ? null : rowOf(state.row),
      kept: state.kept,
      zoom: view.sx / home.sx,
      centre: [view.x, view.y],
      frames: state.frames,
      redrawMs: state.redrawMs,
      dark: theme.dark,
    }),
    place: (row) => { const i = indexOfRow(row); return [toX(X[i]), toY(Y[i])]; },
    colourOf: (row) => { const i = indexOfRow(row); return [...colours.slice(3 * i, 3 * i + 3), opacity[i]]; },
    value: (row, feature) => valueOf(indexOfRow(row), feature),
    pixel: (x, y) => [...pen.getImageData(Math.round(x * size.ratio), Math.round(y * size.ratio), 1, 1).data],
    draw: () => { draw(); return state.redrawMs; },
  });

  // ------------------------------------------------------------------ begin
  $("explorer").hidden = false;
  $("theme").hidden = false;
  fillColours();
  buildValues();
  readTheme();
  $("theme").setAttribute("aria-pressed", String(theme.dark));
  resize();
  recolour();
  connect();
})();
