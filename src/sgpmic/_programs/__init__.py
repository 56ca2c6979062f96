"""Compiled programs: made once for many shapes, kept for the next Python process, let go in time.

Tracing and compiling take most of the time of a first fit. What was traced (:mod:`.traces`) and
what was compiled are both kept in a folder of the user's (:mod:`.folder`), so that the next process
does neither.
"""

from sgpmic._programs.compiling import compiled, release_programs

__all__ = ["compiled", "release_programs"]
