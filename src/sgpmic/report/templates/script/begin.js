$("explorer").hidden = false;
$("theme").hidden = false;
$("more-controls").open = window.innerWidth > 860; // they fold away on a phone
fillColours();
buildValues();
showNames();
readTheme();
$("theme").setAttribute("aria-pressed", String(theme.dark));
resize();
recolour();
buildRows();
connect();
