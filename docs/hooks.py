"""What happens to the pages while MkDocs builds them: formulas become MathML, lines break well.

Browsers draw MathML themselves, so a page needs neither a script nor a network for its formulas.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves behind in its generic mode.
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
# Sphinx's roles in docstrings, which Markdown does not know: :class:`SGPMIC` is `SGPMIC`.
_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr):(?=<code>)")
# ... and its sign that a block follows; and a type that mkdocstrings takes for a difference.
_SPELLING = {"::</p>": ":</p>", "path</span> - <span": "path</span>-<span"}
# Code, in which nothing is changed, between the parts of a page that are words.
_CODE = re.compile(r"(<pre.*?</pre>|<code.*?</code>)", re.DOTALL)
# An option of the command line, which is short; browsers break lines after dashes.
_OPTION = re.compile(r"<code>(--?[a-z][^<]{0,24})</code>")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return the page with its formulas drawn and its lines broken where a reader expects it."""
    # Scripts need the width, and these pages have no headings to list beside them.
    if page.file.src_uri.startswith("gallery/"):
        page.meta["hide"] = ["toc"]
    content = _DISPLAY.sub(lambda found: _mathml(found[1], "block"), content)
    content = _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    content = _ROLE.sub("", content)
    for wrong, right in _SPELLING.items():
        content = content.replace(wrong, right)
    parts = _CODE.split(content)
    parts[::2] = [re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", words) for words in parts[::2]]
    parts[1::2] = [_OPTION.sub(r'<code class="option">\1</code>', code) for code in parts[1::2]]
    return "".join(parts)


_SPACE = '<mspace width="0.17em"/>'
# Where latex2mathml takes an operator for a letter, which browsers set without its space.
_OPERATORS = {
    "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",  # \sim
    "<mi>&#x027E8;</mi>": '<mo form="prefix" stretchy="false">&#x027E8;</mo>',  # \langle
    "<mi>&#x027E9;</mi>": '<mo form="postfix" stretchy="false">&#x027E9;</mo>',  # \rangle
}
# 2 log x, not 2logx; but log(x).
_BEFORE = re.compile(r"(</(?:mfrac|msub|msup|mstyle|mi|mn)>)(<mi>(?:log|exp)</mi>)")
_AFTER = re.compile(r"(<mi>(?:log|exp)</mi>)(?=<m(?!o)|<mrow><mo[^>]*>&#x0007C;)")
_MAXIMUM = re.compile(r"<msub><mo>max</mo>(.*?)</msub>")


def _mathml(latex: str, display: str) -> str:
    drawn: str = convert(html.unescape(latex).strip(), display=display)
    for wrong, right in _OPERATORS.items():
        drawn = drawn.replace(wrong, right)
    drawn = _BEFORE.sub(rf"\1{_SPACE}\2", drawn)
    drawn = _AFTER.sub(rf"\1{_SPACE}", drawn)
    if display == "block":
        drawn = _MAXIMUM.sub(r"<munder><mo>max</mo>\1</munder>", drawn)
    return f'<div class="formula">{drawn}</div>' if display == "block" else drawn
