// How the column that colors the picture is distributed in every cluster.
const SVG = "http://www.w3.org/2000/svg";
const MOST_LINES = 30; // clusters

function svgElement(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The values of a number in a cluster, sorted; missing ones left out. */
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

/** A box from the quarter to the three quarters, a line from 5 to 95 %, a bar at the median. */
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

/** A bar for every cluster, divided by the shares of the levels, in their colors. */
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
