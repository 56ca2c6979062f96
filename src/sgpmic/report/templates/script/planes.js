// Which latent dimensions are shown. Where there are three or more, any two, and the cloud can be
// turned about the vertical axis so that a third one comes into sight.
const places = unpack(data.places);
const nDimensions = places.length / n;
const dimension = (k) => places.subarray(k * n, (k + 1) * n);
const turn = { angle: 0, playing: false, then: 0 };
let map, X, Y, boundaries;
let cells = null; // the grid that finds rows; built when it is needed (finding.js)

function setMap(index) {
  map = data.maps[index];
  X = dimension(map.axes[0]);
  Y = dimension(map.axes[1]);
  boundaries = unpack(map.boundaries);
  cells = null;
}

setMap(0);

const thirdDimension = () => [0, 1, 2].find((k) => !map.axes.includes(k));

/** What an axis shows, in words. */
function axisName(k) {
  const own = map.axes[k] + 1;
  if (k === 1 || turn.angle === 0) return `latent dimension ${own}`;
  return `latent dimensions ${own} and ${thirdDimension() + 1}, turned by ${turn.angle}°`.replace("-", "−");
}

/** The middle of the first view, and how far the cloud reaches from it when it is turned. */
function turningCircle() {
  const x = dimension(map.axes[0]), z = dimension(thirdDimension());
  const [low, high] = extremes(z);
  const cx = (map.home[0] + map.home[1]) / 2, cz = (low + high) / 2;
  let radius = 0;
  for (let i = 0; i < n; i++) radius = Math.max(radius, Math.hypot(x[i] - cx, z[i] - cz));
  return { cx, cz, radius: 1.05 * radius };
}

/** The box that the first view shows: x0, x1, y0, y1. */
function homeBox() {
  if (turn.angle === 0) return map.home;
  const { cx, radius } = turningCircle();
  return [cx - radius, cx + radius, map.home[2], map.home[3]];
}

function choosePlane(index) {
  stopTurning();
  setMap(index);
  turn.angle = 0;
  $("turn").value = "0";
  paintDensity();
  home = homeView();
  resetView();
}

function turnTo(degrees) {
  const wasFlat = turn.angle === 0;
  turn.angle = degrees;
  X = dimension(map.axes[0]);
  if (degrees !== 0) {
    const x = X, z = dimension(thirdDimension());
    const { cx, cz } = turningCircle();
    const cos = Math.cos((degrees * Math.PI) / 180), sin = Math.sin((degrees * Math.PI) / 180);
    X = new Float32Array(n);
    for (let i = 0; i < n; i++) X[i] = cx + cos * (x[i] - cx) + sin * (z[i] - cz);
  }
  cells = null;
  if (wasFlat !== (degrees === 0)) { home = homeView(); Object.assign(view, home); }
  changed();
}

function stopTurning() {
  turn.playing = false;
  $("turn-play").setAttribute("aria-pressed", "false");
}

/** Turn by 30 degrees a second until the button is pressed again. */
function playTurning() {
  turn.playing = !turn.playing;
  $("turn-play").setAttribute("aria-pressed", String(turn.playing));
  turn.then = performance.now();
  const step = (now) => {
    if (!turn.playing) return;
    const passed = Math.round((now - turn.then) * 0.03);
    if (passed > 0) {
      turn.then = now;
      const degrees = ((turn.angle + passed + 180) % 360) - 180;
      $("turn").value = String(degrees);
      turnTo(degrees);
    }
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function connectPlanes() {
  if (nDimensions < 3) return;
  const select = $("plane");
  data.maps.forEach(({ axes: [a, b] }, k) => select.append(option(String(k), `${a + 1} and ${b + 1}`)));
  select.addEventListener("change", () => choosePlane(Number(select.value)));
  $("turn").addEventListener("input", (event) => { stopTurning(); turnTo(Number(event.target.value)); });
  $("turn-play").addEventListener("click", playTurning);
  $("planes").hidden = false;
}

/** The rows as the picture shows them: what marks, rings and selections need to know. */
function latentSurface() {
  const frame = { left: MARGIN.left, top: MARGIN.top, right: size.width - MARGIN.right, bottom: size.height - MARGIN.bottom };
  return { box, x: X, y: Y, toX, toY, scale: { x: view.sx, y: view.sy }, frame, ratio: size.ratio };
}
