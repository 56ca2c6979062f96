// Distribution, by cluster, of the column that colors the plot.
const SVG = "http://www.w3.org/2000/svg";
const MOST_LINES = 30; // clusters

function svgElement(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Sorted values of a numeric column in cluster m, without missing ones. */
function valuesOf(m, value) {
  const found = [];
  for (let i = 0; i < n; i++) {
    if (clusterOf(i) !== m) continue;
    const one = value(i);
    if (!Number.isNaN(one)) found.push(one);
  }
  return Float64Array.from(found).sort();
}

function quantile(sorted, share) {
  const at = share * (sorted.length - 1), low = Math.floor(at);
  return sorted[low] + (at - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}

const SHARES = [0.05, 0.25, 0.5, 0.75, 0.95];

/** Box plot: quartiles, median, and whiskers from the 5th to the 95th percentile. */
function boxLine(chart, quantiles, place, y, m, words) {
  const [low, first, median, third, high] = quantiles.map(place);
  const group = svgElement("g", { class: "box" });
  group.append(svgElement("title", {}, words));
  group.append(svgElement("line", { x1: low, x2: high, y1: y, y2: y, class: "whisker" }));
  const width = Math.max(third - first, 1);
  group.append(svgElement("rect", { x: first, y: y - 7, width, height: 14, rx: 2, class: "fill-" + m }));
  group.append(svgElement("line", { x1: median, x2: median, y1: y - 9, y2: y + 9, class: "median" }));
  chart.append(group);
}

function lineNames(chart, clusters) {
  clusters.forEach((m, k) => {
    chart.append(svgElement("text", { x: 112, y: 26 * k + 20, "text-anchor": "end" }, shorten(clusterName(m), 18)));
  });
}

function numberChart(chart, clusters, value, words) {
  const all = clusters.map((m) => {
    const sorted = valuesOf(m, value);
    return sorted.length ? SHARES.map((share) => quantile(sorted, share)) : null;
  });
  const seen = all.filter(Boolean);
  if (!seen.length) return;
  const [low, high] = extremes(seen.flat());
  const span = high / 2 - low / 2;
  const place = (v) => (span > 0 ? 124 + (466 * (v / 2 - low / 2)) / span : 357);
  all.forEach((quantiles, k) => {
    if (!quantiles) return;
    const middle = `${clusterName(clusters[k])}: half of the rows between ${words(quantiles[1])} and ${words(quantiles[3])}, median ${words(quantiles[2])}`;
    boxLine(chart, quantiles, place, 26 * k + 16, clusters[k], middle);
  });
  const y = 26 * clusters.length + 20;
  chart.append(svgElement("text", { x: 124, y, "text-anchor": "start" }, words(low)));
  if (span > 0) chart.append(svgElement("text", { x: 590, y, "text-anchor": "end" }, words(high)));
}

/** Stacked bars, one per cluster: the proportions of a category's levels. */
function levelChart(chart, clusters, group) {
  clusters.forEach((m, k) => {
    const counts = new Float64Array(group.names.length);
    for (let i = 0; i < n; i++) if (clusterOf(i) === m) counts[group.codes[i]]++;
    const total = counts.reduce((a, b) => a + b, 0);
    let x = 124;
    counts.forEach((count, level) => {
      if (!count) return;
      const width = (466 * count) / total;
      const gray = level >= LABEL_COLORS || group.names[level] === MISSING;
      const bar = svgElement("rect", { x, y: 26 * k + 8, width, height: 16, class: gray ? "rest" : "fill-" + level });
      bar.append(svgElement("title", {}, `${clusterName(m)}: ${group.names[level]} ${percent(count / total)}`));
      chart.append(bar);
      x += width;
    });
  });
}

function drawDistribution() {
  const figure = $("distribution");
  const chart = $("distribution-chart");
  figure.hidden = state.color === "cluster";
  if (figure.hidden) return;
  const group = groupOf(state.color), feature = featureOf(state.color);
  const name = group ? group.name : feature >= 0 ? data.features[feature] : "certainty";
  const clusters = data.sizes.map((_, m) => m).filter((m) => data.sizes[m]).slice(0, MOST_LINES);
  $("distribution-name").textContent = shorten(name, 60);
  $("distribution-words").textContent = group
    ? "The share of every level in every cluster."
    : "Half of a cluster’s rows lie in its box, nine tenths on its line; the bar is the median.";
  const height = 26 * clusters.length + (group ? 6 : 28);
  chart.setAttribute("viewBox", `0 0 600 ${height}`);
  chart.setAttribute("aria-label", `${shorten(name, 60)} by cluster`);
  chart.replaceChildren();
  lineNames(chart, clusters);
  if (group) levelChart(chart, clusters, group);
  else if (feature >= 0) numberChart(chart, clusters, (i) => valueOf(i, feature), (v) => valueWords(v, feature, 4));
  else numberChart(chart, clusters, certaintyOf, percent);
}

/** The row with the least value of a function below a limit; -1 if none. */
function leastRow(measure, limit = Infinity) {
  let best = -1, least = limit;
  for (let i = 0; i < n; i++) {
    const value = measure(i);
    if (value < least) { least = value; best = i; }
  }
  return best;
}

/** The nearest row that is not faded, within reach of a position on a surface; -1 if none. */
function pick({ x, y, toX, toY, scale }, at, reach) {
  // The projection is affine: origin and scale determine it.
  const ox = toX(0) - at.x, oy = toY(0) - at.y, kx = scale.x, ky = scale.y;
  return leastRow((i) => (active[i] ? (ox + x[i] * kx) ** 2 + (oy - y[i] * ky) ** 2 : Infinity), reach * reach);
}

/** The current row's nearest neighbor in direction (dx, dy); sideways distance counts more. */
function neighbor(dx, dy) {
  return leastRow((i) => {
    const ax = (X[i] - X[state.row]) * view.sx, ay = -(Y[i] - Y[state.row]) * view.sy;
    const ahead = ax * dx + ay * dy, aside = Math.abs(ax * dy) + Math.abs(ay * dx);
    return inClusters(i) && ahead > 1e-6 && aside <= ahead ? ahead + 2 * aside : Infinity;
  });
}

/** The row nearest to the center of the view, where arrow-key navigation starts. */
function centralRow() {
  const distance = (i) => Math.hypot((X[i] - view.x) * view.sx, (Y[i] - view.y) * view.sy);
  return leastRow((i) => (inClusters(i) ? distance(i) : Infinity));
}

/** The next (or previous) row, in table order, of an emphasized cluster. */
function following(step) {
  for (let i = state.row + step; i >= 0 && i < n; i += step) if (inClusters(i)) return i;
  return -1;
}

const MOST_VALUES = 60; // more would be too long to read
const rowCells = []; // an element and the function of a row whose words it shows

function pair(list, name, value) {
  const term = element("dt"), words = element("dd");
  term.append(element("bdi", "", name));
  words.append(element("bdi", "", value));
  list.append(term, words);
  return words.firstChild;
}

function buildValues() {
  const list = $("row-values");
  const add = (name, words) => rowCells.push([pair(list, shorten(name, 60), ""), words]);
  for (const { name, words } of textColumns) add(name, (i) => words(i) || "–");
  for (const { name, words } of [...featureColumns, ...categoryColumns].slice(0, MOST_VALUES)) add(name, (i) => shorten(words(i), 60));
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
  pair(facts, "cluster", names[clusterOf(i)] || String(clusterOf(i)));
  pair(facts, "certainty", percent(certaintyOf(i)));
  if (groups[0]) pair(facts, shorten(groups[0].name, 40), shorten(levelOf(i, groups[0]), 60));
  const chances = $("row-chances");
  chances.replaceChildren();
  for (let k = 0; k < top; k++) {
    pair(chances, shorten(clusterName(topClusters[i * top + k]), 40), percent(topChances[i * top + k] / 65535));
  }
  for (const [cell, words] of rowCells) cell.textContent = words(i);
}

let speaking = 0;

/** Announce to screen readers, debounced: a moving pointer would interrupt each announcement. */
function speak(words, pause) {
  clearTimeout(speaking);
  speaking = setTimeout(() => { $("live").textContent = words; }, pause);
}

function placeTooltip(i) {
  const tip = $("tooltip");
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.replaceChildren(element("bdi", "", shorten(nameOf(i), 60)));
  tip.append(element("div", "", `${shorten(clusterName(clusterOf(i)), 40)}, ${percent(certaintyOf(i))}`));
  const px = toX(X[i]), py = toY(Y[i]);
  const inside = px > MARGIN.left - 1 && px < size.width && py > 0 && py < size.height;
  tip.hidden = !inside;
  const left = px + 14 + tip.offsetWidth > size.width ? px - 14 - tip.offsetWidth : px + 14;
  tip.style.left = Math.max(left, 2) + "px";
  tip.style.top = Math.min(Math.max(py - tip.offsetHeight - 8, 2), size.height - tip.offsetHeight - 2) + "px";
}

/** Show a row: ring, tooltip, details panel and screen-reader announcement. */
function show(i, pause) {
  placeTooltip(i);
  if (i === state.row) return;
  state.row = i;
  fillDetails(i);
  drawOverlays();
  if (i >= 0) speak(sentence(i), pause);
}

/** Pan, if necessary, until a row is well inside the view. */
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
