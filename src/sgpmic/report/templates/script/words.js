function number(value, digits) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) < 1e-12) return "0"; // what rounding leaves
  const short = Number(value.toPrecision(digits || 6));
  const size = Math.abs(short);
  const text = size !== 0 && (size >= 1e9 || size < 1e-4) ? short.toExponential() : String(short);
  return text.replace(/-/g, "−");
}

/** A value of a feature in words; dates are days since 1970. */
function valueWords(value, feature, digits) {
  if (!Number.isFinite(value) || !data.dates.includes(feature)) return number(value, digits);
  return new Date(Math.round(value) * 864e5).toISOString().slice(0, 10);
}

function percent(share) {
  if (share >= 0.9995 && share < 1) return "> 99.9 %";
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return (100 * share).toFixed(1) + " %";
}

function sentence(i) {
  let words = `${nameOf(i)}: ${clusterName(clusterOf(i))}, certainty ${percent(certaintyOf(i))}`;
  if (groups[0]) words += `, ${groups[0].name} ${levelOf(i, groups[0])}`;
  const some = Math.min(data.features.length, 4);
  for (let f = 0; f < some; f++) words += `, ${data.features[f]} ${valueWords(valueOf(i, f), f)}`;
  for (const text of data.texts) words += `, ${text.name} ${text.words[i]}`;
  for (const group of groups.slice(1, 3)) words += `, ${group.name} ${levelOf(i, group)}`;
  return words + ".";
}
