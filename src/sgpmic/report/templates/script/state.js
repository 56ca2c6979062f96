const box = $("canvas-box");
const canvas = $("points");
const overlay = $("overlay");
// The pixels are read back at every redraw: keep them in main memory.
const pen = canvas.getContext("2d", { willReadFrequently: true });
const overPen = overlay.getContext("2d");
const state = {
  color: "cluster", // or certainty, given, feature:<k>, category:<k>
  selected: new Set(), // clusters; empty: all
  picked: new Uint8Array(n), // rows, by hand; none: all
  nPicked: 0,
  tool: "pan", // or box, lasso
  layers: { outlines: true, density: true, boundaries: true },
  row: -1, // index of the row that is shown
  kept: false, // whether it stays when the pointer moves on
  frames: 0,
  redrawMs: 0,
};
const view = { x: 0, y: 0, sx: 1, sy: 1 }; // center; pixels a unit
const size = { width: 0, height: 0, ratio: 1 };
const MARGIN = { left: data.maps[0].plane ? 54 : 16, right: 12, top: 12, bottom: 38 };
let home = { x: 0, y: 0, sx: 1, sy: 1 };
let waiting = false;

const inClusters = (i) => state.selected.size === 0 || state.selected.has(clusterOf(i));
const isActive = (i) => inClusters(i) && (state.nPicked === 0 || state.picked[i] === 1);
const innerWidth = () => size.width - MARGIN.left - MARGIN.right;
const innerHeight = () => size.height - MARGIN.top - MARGIN.bottom;
const toX = (x) => MARGIN.left + innerWidth() / 2 + (x - view.x) * view.sx;
const toY = (y) => MARGIN.top + innerHeight() / 2 - (y - view.y) * view.sy;
const fromX = (px) => view.x + (px - MARGIN.left - innerWidth() / 2) / view.sx;
const fromY = (py) => view.y - (py - MARGIN.top - innerHeight() / 2) / view.sy;
