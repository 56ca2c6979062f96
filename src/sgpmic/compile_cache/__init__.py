"""Compiled programs: one for many shapes, kept for the next Python process, let go in time."""

from sgpmic.compile_cache.disk import keepable
from sgpmic.compile_cache.programs import compiled, release_programs

__all__ = ["compiled", "keepable", "release_programs"]
