"""Traces of programs: what JAX makes of a function for arguments of certain shapes.

Tracing runs Python and takes longer than loading the compiled program. So a trace is kept too, in
the form that ``jax.export`` gives it (data, not code), under a name made of everything it depends
on: the function, its arguments but for the numbers in their arrays, our source, and JAX's version.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

#: Settings of JAX that change what is traced.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
_PACKAGE = __name__.partition(".")[0]
_ARRAY = "array"


class CannotBeKeptError(Exception):
    """A trace that is not for one device, or of classes that may change without a sign."""


class Trace(NamedTuple):
    """A function from arrays to arrays that is traced already, and the structure of its results."""

    function: Callable[..., Any]
    results: Any


def find_or_trace(function: Callable[..., Any], args: Any, kwargs: Any, folder: Path) -> Trace:
    """Return the trace of a function for such arguments on a processor.

    It comes from the folder if it is there.
    """
    from jax import export

    path = folder / f"traced_{function.__name__}-{_key(function, args, kwargs)}"
    with suppress(Exception):  # there is none yet, or it is damaged
        head, _, body = path.read_bytes().partition(b"\n")
        digest, results_there = json.loads(head)
        if digest == _digest(body):
            return _trace(function, export.deserialize(bytearray(body)), results_there)
    leaves, structure = jax.tree.flatten((args, kwargs))
    results: list[Any] = []

    def on_arrays(*arrays: jax.Array) -> list[jax.Array]:
        remaining = iter(arrays)
        filled = [next(remaining) if is_array(leaf) else leaf for leaf in leaves]
        filled_args, filled_kwargs = jax.tree.unflatten(structure, filled)
        result = function(*filled_args, **filled_kwargs)
        results.append(_describe(result))
        return jax.tree.leaves(result)

    # For a processor, also where JAX would rather compute on a GPU.
    exported = export.export(jax.jit(on_arrays), platforms=["cpu"])(*arrays_of((args, kwargs)))
    with suppress(OSError):  # a full disk
        body = bytes(exported.serialize())
        _write(path, json.dumps([_digest(body), results[0]]).encode() + b"\n" + body)
    return _trace(function, exported, results[0])


def arrays_of(arguments: Any) -> list[Any]:
    """Return the arrays among arguments, in a fixed order."""
    return [leaf for leaf in jax.tree.leaves(arguments) if is_array(leaf)]


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is JAX's or NumPy's array, or a scalar of theirs."""
    return hasattr(leaf, "shape")


def count_devices(leaf: Any) -> int:
    """Return over how many devices a leaf is spread."""
    return len(leaf.sharding.device_set) if isinstance(leaf, jax.Array) else 1


def _trace(function: Callable[..., Any], exported: Any, results: Any) -> Trace:
    def on_arrays(*arrays: jax.Array) -> Any:
        return exported.call(*arrays)

    on_arrays.__name__ = function.__name__  # compiled programs are kept under it
    return Trace(on_arrays, jax.tree.structure(_rebuild(results)))


def _key(function: Callable[..., Any], args: Any, kwargs: Any) -> str:
    if any(count_devices(leaf) > 1 for leaf in arrays_of((args, kwargs))):
        raise CannotBeKeptError("several devices")
    settings = [str(getattr(jax.config, name)) for name in _SETTINGS]
    arguments = [_describe(args), sorted((k, _describe(v)) for k, v in kwargs.items())]
    arrays = [
        f"{leaf.dtype}{leaf.shape}{getattr(leaf, 'weak_type', False)}"
        for leaf in arrays_of((args, kwargs))
    ]
    name = f"{function.__module__}.{function.__qualname__}"
    everything = [name, _source(), jax.__version__, settings, arguments, arrays]
    return _digest(json.dumps(everything).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@cache
def _source() -> str:
    """Return a digest of our source."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return _digest(b"".join(path.read_bytes() for path in sources))


def _describe(value: Any) -> Any:
    """Return what a value is made of, without the numbers in its arrays, for JSON."""
    if is_array(value):
        return _ARRAY
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if type(value) is tuple:
        return [_describe(item) for item in value]
    kind = type(value)
    if kind.__module__.partition(".")[0] == _PACKAGE:
        name = f"{kind.__module__}:{kind.__qualname__}"
        if isinstance(value, tuple):  # a NamedTuple
            return {"tuple": name, "items": [_describe(item) for item in value]}
        if is_dataclass(value):
            items = {f.name: _describe(getattr(value, f.name)) for f in fields(value)}
            return {"dataclass": name, "items": items}
    raise CannotBeKeptError(kind)


def _rebuild(description: Any) -> Any:
    """Return a value that is described so, with a number in place of every array."""
    if description == _ARRAY:
        return 0
    if isinstance(description, list):
        return tuple(_rebuild(item) for item in description)
    if "value" in description:
        return description["value"]
    if "tuple" in description:
        return _class(description["tuple"])(*map(_rebuild, description["items"]))
    made = object.__new__(_class(description["dataclass"]))
    for name, item in description["items"].items():
        object.__setattr__(made, name, _rebuild(item))
    return made


def _class(name: str) -> Any:
    module, _, within = name.partition(":")
    if module.partition(".")[0] != _PACKAGE:
        raise ValueError(name)
    return getattr(importlib.import_module(module), within)


def _write(path: Path, content: bytes) -> None:
    """Write a file in one piece, also where several processes write it at once."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
