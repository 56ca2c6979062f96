"""What the JSON of a file must be: files may be damaged, or forged.

A kind is a type; None; a tuple of kinds, of which a value has one; a list, whose only entry stands
for all of a value's; or a dict of kinds by name (the name Any stands for all). True and False are
not numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBER = (int, float)


def check_kinds(found: Any, kinds: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a JSON object has entries of these kinds; others do not matter."""
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    for name, kind in kinds.items():
        if name not in found:
            raise ValueError(f"it has no {name!r}")
        if not _is(found[name], kind):
            raise ValueError(f"its {name!r} cannot be {found[name]!r:.60}")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(kind, tuple):
        return any(_is(value, one) for one in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is(entry, kind[0]) for entry in value)
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return False
        kinds = dict.fromkeys(value, kind[Any]) if Any in kind else kind
        return all(name in value and _is(value[name], one) for name, one in kinds.items())
    if kind is None:
        return value is None
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
