"""Words that a table may hold and that a page must show as words."""

HOSTILE = [
    "<script>window.__pwned = 1</script>",
    "</script><script>window.__pwned = 2</script>",
    '"><img src=x onerror="window.__pwned = 3">',
    "' onmouseover='window.__pwned = 4",
    "<!-- <script>",
    "{{7*7}}{% raise %}",
    "${7*7}`\\u003cimg src=x onerror=alert(1)>",
    "line\u2028separator\u2029here",
    "&lt;b&gt; &amp; \"quotes\" 'too'",
    "\u202eright to left\u202c שלום عربى",
    "👩‍👩‍👧 emoji",
    "</style></textarea></title><svg onload=window.__pwned=5>",
    "nul \x00 and \x1b escape",
    "half a pair \ud83d",
    "javascript:alert(1)",
    "long " + "name" * 2500,
]
