/* The latent space on a canvas, and what can be done with its rows. No library: points are stamped
   into the canvas's own pixels, which needs no WebGL and takes a few hundredths of a second for
   100 000 rows on one slow core.

   Everything that comes from the data is shown with textContent, never as HTML. */
const $ = (id) => document.getElementById(id);
const payload = $("payload");
const data = JSON.parse(payload.textContent);

const ARRAYS = { float32: Float32Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

function unpack(packed) {
  const text = atob(packed.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[packed.type](bytes.buffer); // little-endian, like every browser's machine
}

const n = data.n;
const top = data.memberships.top;
const topClusters = unpack(data.memberships.clusters);
const topChances = unpack(data.memberships.chances);
const rowNumbers = data.rows ? unpack(data.rows) : null;
const valueCodes = unpack(data.values.codes);
// Columns of words: the given labels, if there are any, and the categories.
const groups = [data.given, ...data.categories].map((column) => column && { ...column, codes: unpack(column.codes) });

/** The least and the greatest of numbers. */
function extremes(values) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; i++) { low = Math.min(low, values[i]); high = Math.max(high, values[i]); }
  return [low, high];
}

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
