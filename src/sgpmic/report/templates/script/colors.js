let theme = {};

function rgb(hex) {
  const k = parseInt(hex.trim().slice(1), 16);
  return [k >> 16, (k >> 8) & 255, k & 255];
}

/** Read the colors from the style sheet, the only place where they are kept. */
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

// Viridis at nine places.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(rgb);

/** 256 colors: viridis without the end that is lost on the page. */
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
const LABEL_COLORS = 12; // the commonest labels have their own; the rest share a gray
const colors = new Uint8Array(3 * n);
const opacity = new Uint16Array(n); // 0 to 256
const active = new Uint8Array(n);

const featureOf = (key) => (key.startsWith("feature:") ? Number(key.slice(8)) : -1);

/** Return the column of words that a choice of colors stands for, if it is one. */
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
    // Doubt fades a row, where color does not say it already.
    opacity[i] = state.color === "cluster" ? dense * (0.4 + 0.6 * certaintyOf(i)) : dense;
    if (!active[i]) { [r, g, b] = gray; opacity[i] = n < 2000 ? 80 : n < 20000 ? 48 : 24; }
    colors[3 * i] = r; colors[3 * i + 1] = g; colors[3 * i + 2] = b;
  }
  drawLegend();
  redraw();
}
