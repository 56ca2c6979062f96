// The table of rows: sorted by any column, searched, filtered, a page at a time.
const ROWS_A_PAGE = 25;
const MOST_COLUMNS = 40;
const table = { order: null, shown: [], page: 0, sort: "row", down: false, words: "", which: "all" };

const secondChance = (i) => (top > 1 ? topChances[i * top + 1] / 65535 : 0);
const secondCluster = (i) => (top > 1 ? topClusters[i * top + 1] : clusterOf(i));

/** The columns: key, heading, what a row shows, what it is sorted by; `text` ones stand to the left. */
const tableColumns = (() => {
  const columns = [
    { key: "row", name: "row", words: nameOf, value: rowOf, link: true, text: true },
    { key: "cluster", name: "cluster", words: (i) => clusterName(clusterOf(i)), value: clusterOf, text: true },
    { key: "certainty", name: "certainty", words: (i) => percent(certaintyOf(i)), value: certaintyOf },
  ];
  if (top > 1) {
    const words = (i) => `${clusterName(secondCluster(i))}: ${percent(secondChance(i))}`;
    columns.push({ key: "second", name: "next cluster", words, value: secondChance, text: true });
  }
  if (data.ids) columns.push({ key: "number", name: "number", words: (i) => String(rowOf(i) + 1), value: rowOf });
  for (const [k, text] of data.texts.entries()) {
    columns.push({ key: "text:" + k, name: text.name, words: (i) => text.words[i], text: true });
  }
  groups.slice(0, 1).filter(Boolean).forEach((group) => columns.push(levelColumn("given", group)));
  data.features.forEach((name, f) => columns.push({
    key: "feature:" + f, name, words: (i) => valueWords(valueOf(i, f), f), value: (i) => valueOf(i, f),
  }));
  groups.slice(1).forEach((group, k) => columns.push(levelColumn("category:" + k, group)));
  return columns.slice(0, MOST_COLUMNS);
})();

function levelColumn(key, group) {
  // Levels are sorted by their words, missing ones last.
  const order = group.names.map((_, k) => k).sort((a, b) =>
    (group.names[a] === MISSING) - (group.names[b] === MISSING) || group.names[a].localeCompare(group.names[b], "en", { numeric: true }));
  const rank = new Float64Array(order.length);
  order.forEach((level, k) => { rank[level] = k; });
  return { key, name: group.name, words: (i) => levelOf(i, group), value: (i) => rank[group.codes[i]], text: true };
}

/** Rows in the order of a column; those without a value come last, whichever way it goes. */
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

/** Whether a row has the words that are searched for: in its name, its texts, its cluster's name or a level's. */
function searcher() {
  const wanted = table.words.trim().toLowerCase();
  if (!wanted) return () => true;
  const has = (words) => words.toLowerCase().includes(wanted);
  const levels = groups.filter(Boolean).map((group) => ({ codes: group.codes, hit: group.names.map(has) }));
  const clusters = names.map((_, m) => has(clusterName(m)));
  return (i) => has(nameOf(i)) || data.texts.some((text) => has(text.words[i])) || clusters[clusterOf(i)] || levels.some(({ codes, hit }) => hit[codes[i]]);
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
  $("rows-count").textContent = count ? `${all(first + 1)} to ${all(last)} of ${all(count)} ${count === 1 ? "row" : "rows"}` : "No row has that.";
  $("rows-before").disabled = first === 0;
  $("rows-after").disabled = last >= count;
  $("rows-save").disabled = $("rows-select").disabled = count === 0;
}

function tableRow(i) {
  const row = element("tr");
  for (const column of tableColumns) {
    const cell = element(column.link ? "th" : "td", column.text ? "text" : "");
    const words = element("bdi", "", shorten(column.words(i), 60));
    if (column.link) {
      cell.scope = "row";
      const button = element("button", "row-link");
      button.type = "button";
      button.append(words);
      button.addEventListener("click", () => visit(rowOf(i)));
      cell.append(button);
    } else {
      cell.append(words);
    }
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
    const button = element("button", "sort");
    button.type = "button";
    button.append(element("bdi", "", shorten(column.name, 40) || "(no name)"));
    button.addEventListener("click", () => sortBy(column.key));
    head.append(button);
    $("rows-head").append(head);
  }
  const left = 3 + (top > 1) + Boolean(data.ids) + data.texts.length + groups.filter(Boolean).length + data.features.length - MOST_COLUMNS;
  if (left > 0) $("rows-note").textContent = `The table shows ${MOST_COLUMNS} columns; ${left} more are in what is saved.`;
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
