/** Sort rows into a grid of about four to a cell, so that few are looked at under the pointer. */
function buildCells() {
  const [x0, x1] = extremes(X), [y0, y1] = extremes(Y);
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
  cells = cells || buildCells();
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
function neighbor(dx, dy) {
  const from = state.row;
  let best = -1, least = Infinity;
  for (let i = 0; i < n; i++) {
    if (!inClusters(i) || i === from) continue;
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
    if (!inClusters(i)) continue;
    const distance = Math.hypot((X[i] - view.x) * view.sx, (Y[i] - view.y) * view.sy);
    if (distance < least) { least = distance; best = i; }
  }
  return best;
}

/** The next row in the table that is in an emphasised cluster. */
function following(step) {
  for (let i = state.row + step; i >= 0 && i < n; i += step) if (inClusters(i)) return i;
  return -1;
}
