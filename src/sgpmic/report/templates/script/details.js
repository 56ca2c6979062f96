const MOST_VALUES = 60; // what a person may want to read through
const valueCells = [];
const levelCells = [];
const textCells = [];

function pair(list, name, value) {
  const term = element("dt"), words = element("dd");
  term.append(element("bdi", "", name));
  words.append(element("bdi", "", value));
  list.append(term, words);
  return words.firstChild;
}

function buildValues() {
  const list = $("row-values");
  for (const text of data.texts) textCells.push(pair(list, shorten(text.name, 60), ""));
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
  pair(facts, "cluster", names[clusterOf(i)] || String(clusterOf(i)));
  pair(facts, "certainty", percent(certaintyOf(i)));
  if (groups[0]) pair(facts, shorten(groups[0].name, 40), shorten(levelOf(i, groups[0]), 60));
  const chances = $("row-chances");
  chances.replaceChildren();
  for (let k = 0; k < top; k++) {
    pair(chances, shorten(clusterName(topClusters[i * top + k]), 40), percent(topChances[i * top + k] / 65535));
  }
  textCells.forEach((cell, k) => { cell.textContent = data.texts[k].words[i] || "–"; });
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
  tip.append(element("div", "", `${shorten(clusterName(clusterOf(i)), 40)}, ${percent(certaintyOf(i))}`));
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
  drawPrincipalRing();
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
