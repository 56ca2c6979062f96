"""Some 150 odd things that somebody takes for a table: every refusal is a sentence."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import io
import linecache
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from tests.cli.helpers import values

from sgpmic import SGPMIC

ROWS = values()
FRAME = pd.DataFrame(ROWS, columns=[*"abc"])
WHOLE = ROWS.astype(np.int64)
SOME = np.eye(60, 3, dtype=bool)


def with_cell(value: object, dtype: Any = object) -> np.ndarray:
    changed = ROWS.astype(dtype)
    changed[3, 1] = value
    return changed


def column(cells: object) -> pd.DataFrame:
    return FRAME.assign(b=cells)


def series(cells: object, dtype: Any = None) -> pl.DataFrame:
    return pl.DataFrame({"a": pl.Series(cells, dtype=dtype), "b": ROWS[:, 0]})


def damaged(part: str, place: int, value: int) -> sp.csr_matrix:
    matrix = sp.csr_matrix(ROWS)
    getattr(matrix, part)[place] = value
    return matrix


def short_data() -> sp.csr_matrix:
    matrix = sp.csr_matrix(ROWS)
    matrix.data = matrix.data[:3]
    return matrix


def inside_itself() -> list[Any]:
    rows: list[Any] = []
    rows.append(rows)
    return rows


class Like:
    """Has what an array has, and is none."""

    shape, dtype = ROWS.shape, ROWS.dtype


class Breaks:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("no array today")

    def __float__(self) -> float:
        raise ZeroDivisionError("no number today")


class Gives:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return ROWS.astype(dtype)

    def __float__(self) -> float:
        return 1.0


class Subclass(np.ndarray):
    pass


fields = [("a", "f8"), ("b", "f8")]

#: What is refused. Whatever is expensive to make, or odd when printed, is made when it is needed.
REFUSED: dict[str, Callable[[], object]] = {
    # No table at all.
    **{
        type(thing).__name__ + f" {number}": lambda thing=thing: thing
        for number, thing in enumerate(
            (
                *(None, 3, 3.0, 1j, True, ..., NotImplemented, "abc", "", b"abc", Path("t.csv")),
                *(len, np, np.ndarray, np.dtype("f8"), slice(3), range(60), {1, 2}, object()),
                *({"a": [1, 2]}, {1: [1.0]}.values(), io.StringIO("1,2"), SGPMIC(), np.ma.masked),
                *(Like(), Breaks()),
            )
        )
    },
    "generator": lambda: (row for row in ROWS),
    "iterator": lambda: iter(ROWS),
    "map": lambda: map(list, ROWS),
    "zip": lambda: zip(ROWS, ROWS, strict=True),
    # Shapes.
    "0-d": lambda: np.array(1.0),
    "0-d object": lambda: np.array({"a": 1}, dtype=object),
    "1-d": lambda: ROWS[:, 0],
    "3-d": lambda: ROWS[None],
    "32-d": lambda: np.ones((1,) * 32),
    "no rows": lambda: np.zeros((0, 3)),
    "a billion features": lambda: np.zeros((0, 10**9)),
    "no features": lambda: np.zeros((60, 0)),
    "empty list": list,
    "empty rows": lambda: [[]] * 60,
    "ragged": lambda: [*ROWS.tolist(), [1.0, 2.0]],
    "ragged objects": lambda: np.array([np.ones(3), np.ones(2)] * 30, dtype=object),
    "nested": lambda: [[[[1.0]]]],
    "inside itself": inside_itself,
    # Cells.
    **{
        f"cell {value!r:.20} {number}": lambda value=value: with_cell(value)
        for number, value in enumerate(
            (
                *("red", "", "\x00", "\ud800", b"\xff", "9" * 5000, 1j, 10**400, float("inf")),
                *(pd.NaT, pd.NA, {"a": 1}, [1, 2], np.ones(2), {1}, len, int, ..., Breaks()),
                *(datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), datetime.timedelta(1)),
                *(decimal.Decimal("sNaN"), ValueError("x")),
            )
        )
    },
    "inf": lambda: with_cell(np.inf, float),
    "-inf": lambda: with_cell(-np.inf, float),
    "only NaN": lambda: np.full((60, 3), np.nan),
    "only None": lambda: [[None, None]] * 60,
    "more than a double": lambda: with_cell(np.longdouble("1e4000"), np.longdouble),
    "lists of words": lambda: [["a", "b"], ["c", "d"]],
    "lists of words and numbers": lambda: [[1, "a"], [2, "b"]] * 30,
    "lists of long integers": lambda: [[10**400, 1]] * 60,
    "lists of complex": lambda: (ROWS + 0j).tolist(),
    "list of words": lambda: ["abc"] * 60,
    "list of bytes": lambda: [b"abc"] * 60,
    "list of dicts": lambda: [{"a": 1}] * 60,
    "list of sets": lambda: [{1, 2}] * 60,
    "list of None": lambda: [None] * 60,
    "list of frames": lambda: [FRAME, FRAME],
    "list of sparse": lambda: [sp.csr_matrix(ROWS)],
    # Kinds of arrays.
    "complex": lambda: ROWS.astype(complex),
    "datetime": lambda: WHOLE.astype("M8[s]"),
    "timedelta": lambda: WHOLE.astype("m8[s]"),
    "words": lambda: with_cell("red", "U32"),
    "bytes": lambda: with_cell(b"red", "S32"),
    "fields": lambda: np.zeros(60, dtype=fields),
    "record array": lambda: np.rec.fromarrays(ROWS.T),
    "void": lambda: np.zeros((60, 3), "V8"),
    "masked all": lambda: np.ma.masked_all((60, 3)),
    "masked words": lambda: np.ma.masked_array(with_cell("red"), mask=False),
    "masked complex": lambda: np.ma.masked_array(ROWS + 0j, mask=SOME),
    "masked fields": lambda: np.ma.masked_array(np.zeros(60, dtype=fields)),
    "masked dates": lambda: np.ma.masked_array(WHOLE.astype("M8[s]"), mask=SOME),
    "masked 1-d": lambda: np.ma.masked_array(ROWS[:, 0]),
    "array.array": lambda: array.array("d", ROWS.ravel()),
    "memory": lambda: memoryview(b"abc"),
    # Tables.
    **{
        f"column {number}": lambda cells=cells: column(cells)
        for number, cells in enumerate(
            (
                *("red", np.inf, 1j, pd.NaT, pd.NA, [{"a": 1}] * 60, [[1]] * 60, [b"x"] * 60),
                *([datetime.date(2020, 1, 1)] * 60, pd.Categorical(["a", "b"] * 30)),
                *(pd.array(["a", None] * 30, dtype="string"), pd.interval_range(0, 60)),
                *(pd.date_range("2020", periods=60), pd.date_range("2020", periods=60, tz="UTC")),
                *(pd.to_timedelta(np.arange(60), "s"), pd.period_range("2020", periods=60)),
            )
        )
    },
    "same names": lambda: pd.DataFrame(ROWS, columns=["a", "a", "b"]),
    "mixed names": lambda: pd.DataFrame(ROWS, columns=[1, "a", 2]),
    "a name that is None": lambda: pd.DataFrame(ROWS, columns=["a", None, "b"]),
    "empty frame": pd.DataFrame,
    "frame without rows": lambda: FRAME[:0],
    "series": lambda: FRAME["a"],
    "index": lambda: FRAME.index,
    "groupby": lambda: FRAME.groupby("a"),
    "polars words": lambda: series(["x"] * 60),
    "polars categories": lambda: series(["x"] * 60, pl.Categorical),
    "polars lists": lambda: series([[1.0]] * 60),
    "polars structs": lambda: series([{"x": 1}] * 60),
    "polars objects": lambda: series([object()] * 60, pl.Object),
    "polars dates": lambda: series([datetime.date(2020, 1, 1)] * 60),
    "polars lazy": lambda: pl.LazyFrame({"a": ROWS[:, 0]}),
    "polars series": lambda: pl.Series(ROWS[:, 0]),
    "arrow words": lambda: pa.table({"a": ["x"] * 60, "b": ROWS[:, 1]}),
    "arrow array": lambda: pa.array(ROWS[:, 0]),
    "JAX complex": lambda: jnp.asarray(ROWS + 1j),
    "JAX 3-d": lambda: jnp.asarray(ROWS)[None],
    "JAX key": lambda: jax.random.key(0),
    "JAX keys": lambda: jax.random.split(jax.random.key(0), (60, 3)),
    "JAX shape": lambda: jax.ShapeDtypeStruct((60, 3), np.float32),
    # Sparse matrices; SciPy does not look at indices before it writes by them.
    "sparse 1-d": lambda: sp.coo_array(ROWS[:, 0]),
    "sparse 3-d": lambda: sp.coo_array(ROWS[None]),
    "sparse complex": lambda: sp.csr_matrix(ROWS + 1j),
    "sparse inf": lambda: sp.csr_matrix(with_cell(np.inf, float)),
    "sparse, no rows": lambda: sp.csr_matrix((0, 3)),
    "sparse, no features": lambda: sp.csr_matrix((60, 0)),
    "index too large": lambda: damaged("indices", 0, 10**6),
    "index below 0": lambda: damaged("indices", 0, -5),
    "pointer too large": lambda: damaged("indptr", 1, 10**6),
    "too little data": short_data,
    "linear operator": lambda: sp.linalg.aslinearoperator(ROWS),
}

#: Frames and columns that a fit refuses too.
NOT_EVEN_ENCODED = (
    *("column 1", "column 2", "polars structs", "polars lazy", "polars series", "arrow array"),
)

#: What is read, and as what.
READ: dict[str, tuple[Callable[[], object], np.ndarray]] = {
    **{
        kind: (lambda kind=kind: ROWS.astype(kind), ROWS.astype(kind).astype(np.float64))
        for kind in ("f2", "f4", "g", ">f8", ">i4", "i1", "O", "U", "S", "?")
    },
    "negative strides": (lambda: ROWS[::-1, ::-1], ROWS[::-1, ::-1]),
    "Fortran": (lambda: np.asfortranarray(ROWS), ROWS),
    "read-only": (lambda: np.frombuffer(ROWS.tobytes()).reshape(60, 3), ROWS),
    "broadcast": (lambda: np.broadcast_to(ROWS[0], (60, 3)), np.tile(ROWS[0], (60, 1))),
    "subclass": (lambda: ROWS.view(Subclass), ROWS),
    "lists": (ROWS.tolist, ROWS),
    "list of arrays": (lambda: list(ROWS), ROWS),
    "list of array.array": (lambda: [array.array("d", row) for row in ROWS], ROWS),
    "deque": (lambda: collections.deque(map(list, ROWS)), ROWS),
    "memory": (lambda: memoryview(ROWS), ROWS),
    "gives an array": (Gives, ROWS),
    "JAX": (lambda: jnp.asarray(ROWS, jnp.float32), ROWS.astype(np.float32)),
    "bfloat16": (lambda: jnp.ones((60, 3), jnp.bfloat16), np.ones((60, 3))),
    "masked objects": (
        lambda: np.ma.masked_array(with_cell("red"), mask=with_cell(1, int) == 1),
        np.where(with_cell(1, int) == 1, np.nan, ROWS),
    ),
    "masked integers": (
        lambda: np.ma.masked_array(WHOLE, mask=SOME),
        np.where(SOME, np.nan, WHOLE),
    ),
    "nullable": (
        lambda: column(pd.array([1, None] * 30, dtype="Int64")),
        np.stack([ROWS[:, 0], np.tile([1, np.nan], 30), ROWS[:, 2]], axis=1),
    ),
    "decimal": (
        lambda: with_cell(decimal.Decimal("1.5")),
        with_cell(1.5, float),
    ),
    "fraction": (lambda: with_cell(fractions.Fraction(1, 4)), with_cell(0.25, float)),
    "None": (lambda: with_cell(None), with_cell(np.nan, float)),
    "polars": (lambda: pl.DataFrame(ROWS), ROWS),
    "arrow": (lambda: pa.table([*ROWS.T], names=[*"abc"]), ROWS),
    **{
        kind: (lambda kind=kind: sp.coo_array(ROWS).asformat(kind), ROWS)
        for kind in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
    },
}


class Learned(Exception):
    """Rows have come through."""


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):
        yield


def rows_of(fit: Callable[[Any], object], X: object) -> np.ndarray:
    """Return the rows that learning is given."""
    seen: list[np.ndarray] = []

    def learn(settings: Any, rows: np.ndarray, *_: Any, **__: Any) -> None:
        seen.append(rows)
        raise Learned

    with (
        mock.patch("sgpmic.learning.run.run", learn),
        quietly(),
        pytest.raises(Learned),
    ):
        fit(X)
    return seen[0]


@pytest.fixture(scope="module")
def model(finished: Path) -> SGPMIC:
    return SGPMIC.load(finished / "model.sgpmic")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_a_sentence(name: str, model: SGPMIC) -> None:
    """Ours or scikit-learn's: somebody has written it, and it is not what NumPy stumbled over."""
    # A fit takes data frames with columns of words, categories and dates.
    is_frame = name.startswith(("column", "polars", "arrow")) and name not in NOT_EVEN_ENCODED
    methods = {"fit": SGPMIC(3).fit, "predict": model.predict}
    if is_frame:
        del methods["fit"]
    if name in ("only NaN", "masked all"):
        del methods["predict"]  # rows without a value get the label -1
    for method in methods.values():
        with quietly(), pytest.raises((ValueError, TypeError)) as caught:
            method(REFUSED[name]())
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        line = linecache.getline(last.filename, last.lineno).strip()
        assert line.startswith("raise "), f"{caught.value} comes from {line}"
        assert {"sgpmic", "sklearn"} & {*Path(last.filename).parts}, last.filename


@pytest.mark.parametrize("name", READ)
def test_what_can_be_read_is_read_right(name: str) -> None:
    make, expected = READ[name]
    np.testing.assert_array_equal(rows_of(SGPMIC(3).fit, make()), expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_cell("red"), "not a table of numbers .* 'red'"),
        (lambda: [*ROWS.tolist(), [1.0]], "not a table of numbers .*inhomogeneous"),
        (lambda: WHOLE.astype("M8[s]"), "dates or times .*TableEncoder"),
        (lambda: pd.DataFrame(ROWS, columns=["a", "a", "b"]), "Two columns .* 'a'"),
        (lambda: (row for row in ROWS), "not a table of numbers .*'generator'"),
        (lambda: np.zeros(60, dtype=fields), "not a table of numbers"),
        (lambda: damaged("indices", 0, 10**6), "invalid sparse matrix"),
    ],
)
def test_the_sentence_says_where_it_is(make: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        SGPMIC(3).fit(make())
