$("explorer").hidden = false;
$("theme").hidden = false;
$("more-controls").open = window.innerWidth > 860; // they fold away on a phone
fillColors();
buildValues();
showNames();
readTheme();
$("theme").setAttribute("aria-pressed", String(theme.dark));
resize();
recolor();
buildRows();
connect();
