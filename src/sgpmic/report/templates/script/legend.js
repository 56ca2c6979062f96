function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawLegend() {
  const legend = $("color-legend");
  legend.replaceChildren();
  $("explorer").classList.toggle("plain-color", state.color !== "cluster");
  drawDistribution();
  if (state.color === "cluster") {
    const small = radiusFor(n) < 2 ? " Marks show their shapes when you zoom in." : "";
    legend.append(element("span", "", "Doubtful rows are fainter." + small));
  } else if (groupOf(state.color)) {
    legendOfLabels(legend, groupOf(state.color));
  } else {
    legendOfScale(legend);
  }
}

function legendOfLabels(legend, group) {
  group.names.slice(0, LABEL_COLORS).forEach((name, k) => {
    const item = element("span");
    const dot = element("span", "dot");
    dot.style.background = name === MISSING ? theme.faded : theme.clusters[k];
    item.append(dot, element("bdi", "", shorten(name, 40) || "(empty)"));
    legend.append(item);
  });
  const more = group.names.length - LABEL_COLORS;
  if (more > 0) legend.append(element("span", "", `${more} rarer ones are gray`));
}

function legendOfScale(legend) {
  const feature = featureOf(state.color);
  const certainty = state.color === "certainty";
  const [low, high] = certainty ? [1 / data.nClusters, 1] : data.values.range[feature];
  const bar = element("span", "scale");
  const stops = [];
  for (let k = 0; k < 256; k += 15) stops.push(`rgb(${theme.scale.slice(3 * k, 3 * k + 3).join(",")})`);
  bar.style.background = `linear-gradient(90deg, ${stops.join(",")})`;
  const name = certainty ? "certainty" : shorten(data.features[feature], 40);
  legend.append(element("bdi", "", name));
  let gaps = 0;
  for (let i = 0; i < n && !certainty; i++) gaps += Number.isNaN(valueOf(i, feature));
  if (low < high) {
    const ends = certainty ? [percent(low), "100 %"] : ["≤ " + valueWords(low, feature, 4), "≥ " + valueWords(high, feature, 4)];
    legend.append(element("span", "", ends[0]), bar, element("span", "", ends[1]));
  } else if (gaps < n) {
    legend.append(element("span", "", "is always " + valueWords(low, feature, 4)));
  }
  if (gaps) legend.append(element("span", "", `${gaps} missing, in gray`));
}

const shorten = (text, longest) => (text.length > longest ? text.slice(0, longest - 1) + "…" : text);
