// The table of rows: sortable by any column, searchable, filtered and paginated.
const ROWS_A_PAGE = 25;
const MOST_COLUMNS = 40;
const table = { order: null, shown: [], page: 0, sort: "row", down: false, words: "", which: "all" };

const secondChance = (i) => topChances[i * top + 1] / 65535;
const secondCluster = (i) => topClusters[i * top + 1];

// Columns: key, heading, cell text, sort value, CSV cell; those with `text` are left-aligned.
const textColumns = data.texts.map(({ name, words }, k) => (
  { key: "text:" + k, name, words: (i) => words[i], csv: (i) => textCell(words[i]), text: true }
));
const featureColumns = data.features.map((name, f) => ({
  key: "feature:" + f, name, words: (i) => valueWords(valueOf(i, f), f), value: (i) => valueOf(i, f),
  csv: (i) => numberCell(valueOf(i, f), f),
}));
const [givenColumn, ...categoryColumns] = groups.map((group, k) => {
  if (!group) return null;
  // Levels sort by name, missing ones last.
  const order = group.names.map((_, level) => level).sort((a, b) =>
    (group.names[a] === MISSING) - (group.names[b] === MISSING) || group.names[a].localeCompare(group.names[b], "en", { numeric: true }));
  const rank = new Float64Array(order.length);
  order.forEach((level, place) => { rank[level] = place; });
  const isMissing = (i) => levelOf(i, group) === MISSING;
  const words = (i) => (isMissing(i) ? "–" : levelOf(i, group));
  const csv = (i) => (isMissing(i) ? "" : textCell(words(i)));
  return { key: k ? "category:" + (k - 1) : "given", name: group.name, words, value: (i) => rank[group.codes[i]], csv, text: true };
});
const allColumns = [
  { key: "row", name: "row", words: nameOf, value: rowOf, link: true, text: true },
  { key: "cluster", name: "cluster", words: (i) => clusterName(clusterOf(i)), value: clusterOf, text: true },
  { key: "certainty", name: "certainty", words: (i) => percent(certaintyOf(i)), value: certaintyOf },
  top > 1 && { key: "second", name: "next cluster", words: (i) => `${clusterName(secondCluster(i))}: ${percent(secondChance(i))}`, value: secondChance, text: true },
  data.ids && { key: "number", name: "number", words: (i) => String(rowOf(i) + 1), value: rowOf },
  ...textColumns, givenColumn, ...featureColumns, ...categoryColumns,
].filter(Boolean);
const tableColumns = allColumns.slice(0, MOST_COLUMNS);

/** Sort rows by a column; missing values come last in either direction. */
function sortRows() {
  const column = tableColumns.find((one) => one.key === table.sort);
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  const sign = table.down ? -1 : 1;
  if ((column.key === "row" && data.ids) || !column.value) {
    const collator = new Intl.Collator("en", { numeric: true });
    order.sort((a, b) => sign * collator.compare(column.words(a), column.words(b)) || a - b);
  } else {
    const values = Float64Array.from({ length: n }, (_, i) => column.value(i));
    order.sort((a, b) => {
      const missing = Number.isNaN(values[a]) - Number.isNaN(values[b]);
      return missing || sign * (values[a] - values[b]) || a - b;
    });
  }
  table.order = order;
}

/** Predicate: the search text occurs in a row's name, texts, cluster name, levels or numbers. */
function searcher() {
  const plain = (words) => words.toLowerCase().replaceAll("−", "-"); // nobody types the former
  const wanted = plain(table.words.trim());
  if (!wanted) return () => true;
  const has = (words) => plain(words).includes(wanted);
  const levels = groups.filter(Boolean).map((group) => ({ codes: group.codes, hit: group.names.map(has) }));
  const clusters = names.map((_, m) => has(clusterName(m)));
  const numbers = tableColumns.filter(({ key }) => /\d/.test(wanted) && key.startsWith("feature:")); // slow: only if needed
  return (i) => has(nameOf(i)) || data.texts.some((text) => has(text.words[i])) || clusters[clusterOf(i)] ||
    levels.some(({ codes, hit }) => hit[codes[i]]) || numbers.some(({ words }) => has(words(i)));
}

function fillRows() {
  if ($("rows").hidden) return;
  if (!table.order) sortRows();
  const found = searcher();
  const wanted = { all: () => true, picked: (i) => state.picked[i] === 1, emphasised: inClusters, doubtful: (i) => certaintyOf(i) < 0.9 }[table.which];
  table.shown = Array.from(table.order).filter((i) => wanted(i) && found(i));
  table.page = Math.min(table.page, Math.max(Math.ceil(table.shown.length / ROWS_A_PAGE) - 1, 0));
  showPage();
}

function showPage() {
  const first = table.page * ROWS_A_PAGE, count = table.shown.length;
  const rows = table.shown.slice(first, first + ROWS_A_PAGE);
  const last = first + rows.length;
  $("rows-body").replaceChildren(...rows.map(tableRow));
  const all = (k) => k.toLocaleString("en");
  $("rows-count").textContent = count ? `${all(first + 1)} to ${all(last)} of ${all(count)} ${count === 1 ? "row" : "rows"}` : "No matching rows.";
  $("rows-before").disabled = first === 0;
  $("rows-after").disabled = last >= count;
  $("rows-save").disabled = $("rows-select").disabled = count === 0;
}

function textButton(className, words, action) {
  const button = element("button", className);
  button.type = "button";
  button.append(element("bdi", "", words));
  button.addEventListener("click", action);
  return button;
}

function tableRow(i) {
  const row = element("tr");
  for (const column of tableColumns) {
    const cell = element(column.link ? "th" : "td", column.text ? "text" : "");
    const words = shorten(column.words(i), 60) || "–";
    if (column.link) cell.scope = "row";
    cell.append(column.link ? textButton("row-link", words, () => visit(rowOf(i))) : element("bdi", "", words));
    row.append(cell);
  }
  return row;
}

function sortBy(key) {
  table.down = table.sort === key ? !table.down : false;
  table.sort = key;
  table.page = 0;
  sortRows();
  markSorted();
  fillRows();
}

function markSorted() {
  tableColumns.forEach((column, k) => {
    const sorted = column.key === table.sort;
    const head = $("rows-head").children[k];
    if (sorted) head.setAttribute("aria-sort", table.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

function buildRows() {
  $("rows").hidden = false;
  $("rows-link").hidden = false;
  for (const column of tableColumns) {
    const head = element("th", column.text ? "text" : "");
    head.scope = "col";
    head.append(textButton("sort", shorten(column.name, 40) || "(no name)", () => sortBy(column.key)));
    $("rows-head").append(head);
  }
  const left = allColumns.length - MOST_COLUMNS;
  if (left > 0) $("rows-note").textContent = `The table shows ${MOST_COLUMNS} columns; saving adds ${left} more.`;
  markSorted();
  fillRows();
}

function connectRows() {
  let pause = 0;
  $("rows-search").addEventListener("input", (event) => {
    clearTimeout(pause);
    pause = setTimeout(() => { table.words = event.target.value; table.page = 0; fillRows(); }, n > 20000 ? 200 : 0);
  });
  $("rows-which").addEventListener("change", (event) => { table.which = event.target.value; table.page = 0; fillRows(); });
  const turnPage = (step) => { table.page += step; showPage(); };
  $("rows-before").addEventListener("click", () => turnPage(-1));
  $("rows-after").addEventListener("click", () => turnPage(1));
  $("rows-save").addEventListener("click", () => saveRows(table.shown, "rows"));
  $("rows-select").addEventListener("click", () => { pickRows(table.shown, false); $("latent").scrollIntoView(); });
}

// Downloads: rows as CSV, the plot as PNG or SVG, the page with cluster names.
// The original page without its data, from which the page with names is saved.
const shell = (() => {
  const kept = payload.textContent;
  payload.textContent = "\u0000";
  const text = document.documentElement.outerHTML;
  payload.textContent = kept;
  return text;
})();

const fileStem = data.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").toLowerCase() || "report";
const MOST_SHAPES = 20000; // above this number, an SVG file has the marks as a bitmap

function saveFile(name, parts, type) {
  const link = document.createElement("a");
  const address = URL.createObjectURL(new Blob(parts, { type }));
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

// ---- rows

/** A text cell. The apostrophe prevents CSV injection: spreadsheets would run text that looks like a formula. */
function textCell(words) {
  const safe = /^[=+\-@\t\r]/.test(words) ? "'" + words : words;
  return /[",\n\r]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
}

function numberCell(value, feature) {
  if (!Number.isFinite(value)) return "";
  if (data.dates.includes(feature)) return valueWords(value, feature);
  return String(Number(value.toPrecision(7)));
}

function csvOf(rows) {
  const columns = [
    { name: "row", csv: (i) => String(rowOf(i) + 1) },
    data.ids && { name: "id", csv: (i) => textCell(data.ids[i]) },
    { name: "cluster", csv: (i) => String(clusterOf(i)) },
    names.some(Boolean) && { name: "cluster name", csv: (i) => textCell(names[clusterOf(i)]) },
    { name: "certainty", csv: (i) => certaintyOf(i).toFixed(5) },
    top > 1 && { name: "next cluster", csv: (i) => String(secondCluster(i)) },
    top > 1 && { name: "probability of next cluster", csv: (i) => secondChance(i).toFixed(5) },
    ...textColumns, givenColumn, ...categoryColumns, ...featureColumns,
  ].filter(Boolean);
  const lines = rows.map((i) => columns.map((column) => column.csv(i)).join(","));
  return [columns.map((column) => textCell(column.name)).join(","), ...lines].join("\n") + "\n";
}

function saveRows(rows, what) {
  // The byte order mark tells spreadsheets that the file is UTF-8.
  saveFile(`${fileStem}-${what}.csv`, ["\ufeff", csvOf(rows)], "text/csv;charset=utf-8");
}

// ---- images

function savePng() {
  const before = size.ratio;
  setRatio(2);
  draw();
  canvas.toBlob((blob) => saveFile(`${fileStem}.png`, [blob], "image/png"));
  setRatio(before);
  draw();
}

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** The marks as shapes, or as a bitmap if there are very many. */
function svgMarks(surface) {
  const { frame } = surface;
  const seen = project(surface);
  if (seen > MOST_SHAPES) {
    const layer = document.createElement("canvas");
    layer.width = canvas.width;
    layer.height = canvas.height;
    const brush = layer.getContext("2d");
    const image = brush.createImageData(layer.width, layer.height);
    const page = rgb(theme.page);
    for (let p = 0; p < image.data.length; p += 4) image.data.set([...page, 255], p);
    stampPoints(image.data, layer.width, surface);
    brush.putImageData(image, 0, 0);
    return `<image width="${size.width}" height="${size.height}" href="${layer.toDataURL()}"/>`;
  }
  const radius = radiusFor(seen) / 6.2;
  const marks = [];
  for (let pass = 0; pass < 2; pass++) {
    for (let i = 0; i < n; i++) {
      if (active[i] !== pass || deviceX[i] < 0) continue;
      const x = surface.toX(surface.x[i]).toFixed(1), y = surface.toY(surface.y[i]).toFixed(1);
      const fill = `rgb(${colors.slice(3 * i, 3 * i + 3).join(",")})`;
      marks.push(`<use href="#m${clusterOf(i) % 8}" transform="translate(${x} ${y}) scale(${radius.toFixed(2)})" fill="${fill}" fill-opacity="${(opacity[i] / 256).toFixed(2)}"/>`);
    }
  }
  const shapes = SHAPES.map((path, k) => `<path id="m${k}" d="${path}"/>`).join("");
  return `<defs>${shapes}</defs><g clip-path="url(#frame)">${marks.join("")}</g>`;
}

function svgLines() {
  const parts = [];
  if (turn.angle !== 0) return "";
  if (state.layers.boundaries) {
    const lines = [];
    for (let k = 0; k < boundaries.length; k += 4) {
      const [a, b, c, d] = boundaries.subarray(k, k + 4);
      lines.push(`M${toX(a).toFixed(1)} ${toY(b).toFixed(1)}L${toX(c).toFixed(1)} ${toY(d).toFixed(1)}`);
    }
    parts.push(`<path d="${lines.join("")}" stroke="${theme.ink}" stroke-opacity=".55" fill="none"/>`);
  }
  if (!state.layers.outlines) return parts.join("");
  map.outlines.forEach((line, m) => {
    if (!data.sizes[m]) return;
    const color = state.color === "cluster" ? theme.clusters[m] : theme.ink;
    const points = line.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(" ");
    parts.push(`<polyline points="${points}" stroke="${color}" stroke-width="2" fill="none"/>`);
    const [x, y] = highest(line);
    const words = names[m] ? `${m}: ${shorten(names[m], 30)}` : String(m);
    parts.push(`<text x="${toX(x).toFixed(1)}" y="${(toY(y) - 5).toFixed(1)}" text-anchor="middle" font-weight="600" stroke="${theme.page}" stroke-width="3" paint-order="stroke">${escaped(words)}</text>`);
  });
  return parts.join("");
}

function svgAxes({ left, top, right, bottom }) {
  const parts = [`<rect x="${left + 0.5}" y="${top + 0.5}" width="${right - left - 1}" height="${bottom - top - 1}" fill="none" stroke="${theme.line}"/>`];
  for (const [x, text] of ticks(fromX(left), fromX(right), Math.max((right - left) / 75, 4))) {
    parts.push(`<text x="${toX(x).toFixed(1)}" y="${bottom + 16}" text-anchor="middle">${text}</text>`);
  }
  parts.push(`<text x="${(left + right) / 2}" y="${size.height - 6}" text-anchor="middle">${escaped(axisName(0))}</text>`);
  if (data.oneDimension) return parts.join("");
  for (const [y, text] of ticks(fromY(bottom), fromY(top), Math.max((bottom - top) / 65, 3))) {
    parts.push(`<text x="${left - 6}" y="${(toY(y) + 4).toFixed(1)}" text-anchor="end">${text}</text>`);
  }
  parts.push(`<text transform="translate(12 ${(top + bottom) / 2}) rotate(-90)" text-anchor="middle">${escaped(axisName(1))}</text>`);
  return parts.join("");
}

function svgPicture() {
  const surface = latentSurface(), { left, top, right, bottom } = surface.frame;
  const clip = `<clipPath id="frame"><rect x="${left}" y="${top}" width="${right - left}" height="${bottom - top}"/></clipPath>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${size.height}" width="${size.width}" height="${size.height}" font-family="system-ui, sans-serif" font-size="12" fill="${theme.ink}">` +
    `<title>${escaped(data.title)}</title>${clip}<rect width="100%" height="100%" fill="${theme.page}"/>` +
    `${svgMarks(surface)}<g clip-path="url(#frame)">${svgLines()}</g>${svgAxes(surface.frame)}</svg>\n`;
}

// ---- the page

/** The original page with the current cluster names. */
function namedPage() {
  const json = JSON.stringify(names).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const [before, after] = shell.split("\u0000");
  const opening = '<script type="application/json" id="names">';
  const from = after.indexOf(opening) + opening.length;
  const page = after.slice(0, from) + json + after.slice(after.indexOf("<" + "/script>", from));
  return ["<!doctype html>\n", before, payload.textContent, page];
}

function saveNamedPage() {
  saveFile(`${fileStem}-named.html`, namedPage(), "text/html;charset=utf-8");
  namesChanged = false;
}

function connectSaving() {
  $("save-png").addEventListener("click", savePng);
  $("save-svg").addEventListener("click", () => saveFile(`${fileStem}.svg`, [svgPicture()], "image/svg+xml"));
  for (const button of document.querySelectorAll("[data-save-cluster]")) {
    const m = Number(button.dataset.saveCluster);
    button.hidden = false;
    button.addEventListener("click", () => saveRows(indices((i) => clusterOf(i) === m), `cluster-${m}`));
  }
}
