// Names that the reader gives to clusters. They stand in an element of their own, so that saving
// the page with new ones leaves all the rest of it as it was.
const names = Array.from({ length: data.nClusters }, (_, m) => JSON.parse($("names").textContent)[m] || "");
let namesChanged = false; // since the page was saved

const clusterName = (m) => names[m] || "cluster " + m;

/** Write the names wherever the page speaks of a cluster. */
function showNames() {
  for (const place of document.querySelectorAll("[data-name-of]")) {
    const m = Number(place.dataset.nameOf);
    if (place.dataset.plain === undefined) place.dataset.plain = place.textContent;
    place.textContent = names[m] ? `${m}: ${names[m]}` : place.dataset.plain;
  }
}

function rename(m, words) {
  names[m] = words.trim().slice(0, 60);
  namesChanged = true;
  $("save-names").hidden = false;
  showNames();
  if (state.row >= 0) fillDetails(state.row);
  fillRows();
  redraw();
}

function connectNames() {
  for (const input of document.querySelectorAll("[data-rename]")) {
    const m = Number(input.dataset.rename);
    input.value = names[m];
    input.addEventListener("change", () => rename(m, input.value));
  }
  for (const form of document.querySelectorAll("form.rename")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  $("save-names").addEventListener("click", saveNamedPage);
  window.addEventListener("beforeunload", (event) => { if (namesChanged) event.preventDefault(); });
}
