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
      const p = 4 * ((rows - 1 - y) * columns + x); // image rows run from top to bottom
      image.data[p] = r; image.data[p + 1] = g; image.data[p + 2] = b;
      image.data[p + 3] = shade[y * columns + x] * 0.4;
    }
  }
  brush.putImageData(image, 0, 0);
}

function drawDensity() {
  const [x0, x1, y0, y1] = map.extent;
  // Pixels are centered on grid points: the image extends half a cell beyond them.
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
  if (data.oneDimension) return;
  pen.textAlign = "right";
  for (const [y, text] of ticks(fromY(lower), fromY(MARGIN.top), Math.max(innerHeight() / 65, 3))) {
    const py = Math.round(toY(y)) + 0.5;
    if (!words) { pen.beginPath(); pen.moveTo(MARGIN.left, py); pen.lineTo(right, py); pen.stroke(); continue; }
    if (py > MARGIN.top + 4 && py < lower - 2) pen.fillText(text, MARGIN.left - 6, py + 4);
  }
}

/** Clear the margins, which marks may have overrun, and draw the axes. */
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
  pen.fillText(axisName(0), MARGIN.left + innerWidth() / 2, size.height - 6);
  if (data.oneDimension) return;
  pen.save();
  pen.translate(12, MARGIN.top + innerHeight() / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(axisName(1), 0, 0);
  pen.restore();
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
    if (!data.sizes[m]) return; // skip empty clusters
    pen.globalAlpha = state.selected.size && !state.selected.has(m) ? 0.2 : 1;
    pen.beginPath();
    line.forEach(([x, y], k) => (k ? pen.lineTo(toX(x), toY(y)) : pen.moveTo(toX(x), toY(y))));
    pen.lineWidth = 4;
    pen.strokeStyle = theme.page;
    pen.stroke();
    pen.lineWidth = 2;
    pen.strokeStyle = state.color === "cluster" ? theme.clusters[m] : theme.ink;
    pen.stroke();
  });
  drawNumbers();
  pen.globalAlpha = 1;
}

const BADGE = 14; // pixels from an outline to the center of its number, so that it covers no marks

/** The first visible position along an outline that overlaps no other number; if none, the first. */
function freePlace(candidates, taken) {
  const onLine = candidates.map(([x, y]) => [toX(x), toY(y)]);
  const [cx, cy] = [0, 1].map((k) => onLine.reduce((sum, at) => sum + at[k], 0) / onLine.length);
  const inPixels = onLine.map(([px, py]) => {
    const away = BADGE / Math.max(Math.hypot(px - cx, py - cy), 1);
    return [px + (px - cx) * away, py + (py - cy) * away];
  });
  const free = ([px, py]) =>
    px > MARGIN.left + 10 && px < size.width - MARGIN.right - 10 &&
    py > MARGIN.top + 10 && py < size.height - MARGIN.bottom - 10 &&
    taken.every(([x, y]) => Math.hypot(px - x, py - y) > 22);
  return inPixels.find(free) || inPixels[0];
}

const highest = (line) => line.reduce((a, b) => (b[1] > a[1] ? b : a));

/** Cluster numbers, needed because shapes and colors repeat if there are many clusters. */
function drawNumbers() {
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const taken = [];
  map.outlines.forEach((line, m) => {
    if (!data.sizes[m]) return;
    pen.globalAlpha = state.selected.size && !state.selected.has(m) ? 0.3 : 1;
    const [px, py] = freePlace([highest(line), ...line], taken);
    taken.push([px, py]);
    const words = names[m] ? `${m}: ${shorten(names[m], 24)}` : String(m);
    const half = Math.max(pen.measureText(words).width / 2 + 5, 10);
    pen.beginPath();
    pen.roundRect(px - half, py - 10, 2 * half, 20, 10);
    pen.fillStyle = theme.page;
    pen.fill();
    pen.lineWidth = 1.5;
    pen.strokeStyle = state.color === "cluster" ? theme.clusters[m] : theme.ink;
    pen.stroke();
    pen.fillStyle = theme.ink;
    pen.fillText(words, px, py + 0.5);
  });
}

function draw() {
  const begun = performance.now();
  pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  pen.fillStyle = theme.page;
  pen.fillRect(0, 0, size.width, size.height);
  const flat = turn.angle === 0; // density and contours are of the plane, not of a rotated view
  if (flat && state.layers.density) drawDensity();
  drawGrid(false);
  const image = pen.getImageData(0, 0, canvas.width, canvas.height);
  stampPoints(image.data, canvas.width, latentSurface());
  pen.putImageData(image, 0, 0);
  pen.save();
  pen.beginPath();
  pen.rect(MARGIN.left, MARGIN.top, innerWidth(), innerHeight());
  pen.clip();
  if (flat && state.layers.boundaries) drawBoundaries();
  if (flat && state.layers.outlines) drawOutlines();
  pen.restore();
  drawFrame();
  drawPrincipal();
  drawOverlays();
  state.redrawMs = performance.now() - begun;
  if (size.ratio > 1) sharpMs = state.redrawMs;
  state.frames++;
}

/** Schedule a draw for the next frame; repeated calls are coalesced. */
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { if (waiting) { waiting = false; draw(); } });
}

const surfaces = () => (principalShown() ? [latentSurface(), principalSurface()] : [latentSurface()]);

/** The box or lasso in progress, and the ring around the current row: on overlays, so that moving them redraws no marks. */
function drawOverlays() {
  for (const surface of surfaces()) {
    const brush = surface.overPen;
    brush.resetTransform();
    brush.clearRect(0, 0, brush.canvas.width, brush.canvas.height);
    brush.scale(size.ratio, size.ratio);
    drawStroke(brush, surface);
    if (state.row >= 0) drawRing(brush, surface);
  }
}

function drawRing(brush, surface) {
  const { left, top, right, bottom } = surface.frame;
  brush.save();
  brush.beginPath();
  brush.rect(left - 10, top - 10, right - left + 20, bottom - top + 20);
  brush.clip();
  for (const [color, width] of [[theme.page, 5], [theme.ink, 2.2]]) {
    brush.beginPath();
    brush.arc(surface.toX(surface.x[state.row]), surface.toY(surface.y[state.row]), 8.5, 0, 7);
    brush.strokeStyle = color;
    brush.lineWidth = width;
    brush.stroke();
  }
  brush.restore();
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawLegend() {
  const legend = $("color-legend");
  legend.replaceChildren();
  $("explorer").classList.toggle("plain-color", state.color !== "cluster");
  drawDistribution();
  if (state.color === "cluster") {
    const small = radiusFor(n) < 2 ? " Marks show their shapes when you zoom in." : "";
    legend.append(element("span", "", "Doubtful rows are fainter." + small));
  } else if (groupOf(state.color)) {
    legendOfLabels(legend, groupOf(state.color));
  } else {
    legendOfScale(legend);
  }
}

function legendOfLabels(legend, group) {
  group.names.slice(0, LABEL_COLORS).forEach((name, k) => {
    const item = element("span");
    const dot = element("span", "dot");
    dot.style.background = name === MISSING ? theme.faded : theme.clusters[k];
    item.append(dot, element("bdi", "", shorten(name, 40) || "(empty)"));
    legend.append(item);
  });
  const more = group.names.length - LABEL_COLORS;
  if (more > 0) legend.append(element("span", "", `${more} rarer ones are gray`));
}

function legendOfScale(legend) {
  const feature = featureOf(state.color);
  const certainty = state.color === "certainty";
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
  if (gaps) legend.append(element("span", "", `${gaps} missing, in gray`));
}

const shorten = (text, longest) => (text.length > longest ? text.slice(0, longest - 1) + "…" : text);
