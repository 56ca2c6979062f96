"""scikit-learn without what it imports and a prediction does not need: most of its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Finder(PathFinder):
    """Finds no pandas, and a ``scipy.stats`` that is loaded when something of it is used."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":  # scikit-learn can do without; others find it afterwards
            raise ModuleNotFoundError(name=fullname)
        if fullname != "scipy.stats":
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def quick_imports() -> Iterator[None]:
    """Let libraries do without both while they are imported and used."""
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)
