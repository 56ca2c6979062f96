"""`TableEncoder`: weights, new rows, storing, against other libraries and closed forms."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import OneHotEncoder

from sgpmic import TableEncoder
from sgpmic.exceptions import SGPMICWarning
from sgpmic.tables.errors import TableError


def mixed(n: int = 120, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "height": rng.normal(170, 9, n),
        "weight": rng.normal(70, 12, n),
        "color": rng.choice(["red", "green", "blue"], n, p=[0.5, 0.3, 0.2]),
        "sex": rng.choice(["male", "female"], n, p=[0.6, 0.4]),
        "port": rng.choice(list("SCQT"), n),
    }


# ------------------------------------------------------------------------------- weights


def test_the_weights_are_those_of_factor_analysis_of_mixed_data() -> None:
    prince = pytest.importorskip("prince")
    table = mixed()
    encoded = TableEncoder().fit_transform(table)
    famd = prince.FAMD(n_components=7).fit(pd.DataFrame(table))
    eigenvalues = np.linalg.svd(encoded - encoded.mean(axis=0), compute_uv=False) ** 2
    # 2 numbers and 2 + 1 + 3 axes of categories; the rest is rounding.
    np.testing.assert_allclose(eigenvalues[:7] / len(encoded), famd.eigenvalues_, rtol=1e-8)
    assert eigenvalues[8:].max() < 1e-20 * eigenvalues[0]


def test_distances_of_levels_are_those_of_chi_square() -> None:
    table = mixed()
    for name in ("color", "sex"):  # three indicators, and one column for two
        cells = table[name]
        share = {level: np.mean(cells == level) for level in np.unique(cells)}
        distances = squareform(pdist(TableEncoder().fit_transform({name: cells}), "sqeuclidean"))
        for i in range(0, 60, 7):
            for j in range(1, 60, 5):
                same = cells[i] == cells[j]
                expected = 0.0 if same else 1 / share[cells[i]] + 1 / share[cells[j]]
                assert distances[i, j] == pytest.approx(expected, abs=1e-9)


def test_no_axis_of_a_category_outweighs_a_number() -> None:
    table = mixed()
    encoder = TableEncoder().fit(table)
    encoded = encoder.transform(table)
    assert encoder.has_categories_
    for j, column in enumerate(encoder.columns_):
        own = encoded[:, encoder.source_ == j]
        axes = np.linalg.svd(own - own.mean(axis=0), compute_uv=False) ** 2 / len(own)
        n_axes = {"color": 2, "port": 3}.get(column.name, 1)
        np.testing.assert_allclose(axes[:n_axes], 1.0, rtol=1e-9)
        assert np.all(axes[n_axes:] < 1e-9)
        # The model then divides all features by one number.
    low, high = np.quantile(np.ptp(encoded, axis=0), [0.1, 0.9])
    assert high <= 10 * low


def test_numbers_alone_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(30, 4)) * [1, 10, 100, 1000]
    Y[3, 2] = np.nan
    encoder = TableEncoder().fit(Y)
    assert not encoder.has_categories_
    np.testing.assert_array_equal(encoder.transform(Y), Y)
    pixels = rng.integers(0, 2, (30, 5))
    np.testing.assert_array_equal(TableEncoder().fit_transform(pixels), pixels)


def test_an_order_and_yes_and_no() -> None:
    table = {"size": ["small", "Large", "medium", None] * 6, "ok": ["y", "N", "yes", "no"] * 6}
    encoder = TableEncoder().fit(table)
    encoded = encoder.transform(table)
    places, truths = [0, 2, 1, np.nan] * 6, [1, 0, 1, 0] * 6
    np.testing.assert_allclose(encoded[:, 0], np.asarray(places) / np.nanstd(places))
    np.testing.assert_allclose(encoded[:, 1], np.asarray(truths) / np.std(truths))
    assert list(encoder.get_feature_names_out()) == ["size", "ok"]


# ------------------------------------------------------------------------------- rare levels


def test_rare_levels_are_joined_as_scikit_learn_joins_them() -> None:
    cells = ["a"] * 60 + ["b"] * 34 + ["c"] * 3 + ["d"] * 2 + ["e"]
    encoder = TableEncoder(min_frequency=0.05).fit({"x": cells})
    assert encoder.columns_[0].features == ("x=a", "x=b", "x=other")
    assert encoder.columns_[0].becomes == "3 indicator columns, 3 rare levels merged"
    peer = OneHotEncoder(min_frequency=0.05, sparse_output=False)
    indicators = peer.fit_transform(np.asarray(cells)[:, None])
    share = indicators.mean(axis=0)
    expected = (indicators - share) / np.sqrt(share)
    np.testing.assert_allclose(encoder.transform({"x": cells}), expected)


@pytest.mark.parametrize(
    ("cells", "features"),
    [
        (["a"] * 50 + ["b"] * 40 + ["c"] * 10, ("x=a", "x=b", "x=c")),
        # Too few together: the rarest of the others joins them.
        (["a"] * 50 + ["b"] * 30 + ["c"] * 18 + ["d", "e"], ("x=a", "x=b", "x=other")),
        (["a"] * 50 + ["b"] * 48 + ["d", "e"], ("x=other",)),
        # A level of this name takes the rare ones in.
        (["a"] * 50 + ["b"] * 30 + ["Other"] * 18 + ["d", "e"], ("x=a", "x=b", "x=other")),
        (["a"] * 98 + ["b"] * 2, ()),
    ],
)
def test_which_levels_are_joined(cells: list[str], features: tuple[str, ...]) -> None:
    table = {"x": cells, "filler": np.random.default_rng(0).normal(size=len(cells))}
    column = TableEncoder().fit(table).columns_[0]
    assert column.features == features
    if not features:
        assert column.becomes == "left out: almost always 'a'"
        assert TableEncoder(kinds={"x": "category"}).fit(table).columns_[0].features == ("x=b",)
        assert TableEncoder(min_frequency=0).fit(table).columns_[0].features == ("x=b",)


def test_a_category_that_is_left_out_does_not_scale_the_numbers() -> None:
    areas = np.arange(200.0) ** 2
    encoder = TableEncoder()
    found = encoder.fit_transform({"area": areas, "site": ["a"] * 199 + ["b"]})
    assert not encoder.has_categories_
    np.testing.assert_array_equal(found, areas[:, None])


def test_a_declared_category_of_rare_levels_is_not_constant() -> None:
    table = {"x": [f"city {i // 2}" for i in range(120)], "filler": np.arange(120.0) ** 2}
    column = TableEncoder(kinds={"x": "category"}).fit(table).columns_[0]
    assert column.kind == "category"
    assert column.becomes == "left out: all levels are rare (below min_frequency)"
    assert column.warning == "declared, but all levels are rare (below min_frequency)"


def test_spellings_of_one_level_are_one() -> None:
    encoder = TableEncoder().fit({"x": ["Red", "red ", "RED", "Red", "blue", "Blue  sky"] * 5})
    assert encoder.columns_[0].features == ("x=Red", "x=blue", "x=Blue  sky")
    np.testing.assert_array_equal(
        encoder.transform({"x": ["rEd", "blue SKY"]}), encoder.transform({"x": ["Red", "Blue sky"]})
    )


# ------------------------------------------------------------------------------- dates, logarithms


def test_dates_become_days_and_their_place_in_the_year() -> None:
    days = np.arange(0, 1500, 7)
    cells = [date(2020, 1, 1) + timedelta(int(day)) for day in days]
    encoder = TableEncoder().fit({"d": cells})
    encoded = encoder.transform({"d": cells})
    assert list(encoder.get_feature_names_out()) == ["d", "d (year, sine)", "d (year, cosine)"]
    assert np.ptp(encoded[:, 0]) == pytest.approx(np.ptp(days) / days.std())
    # Sine and cosine weigh as much as a number, together.
    assert encoded[:, 1:].var(axis=0).sum() == pytest.approx(1.0)
    # The same day of another year is at the same place, half a year later on the other side.
    new = encoder.transform({"d": ["2021-03-01", "2023-03-01", "2022-08-31"]})[:, 1:]
    radius = np.linalg.norm(new[0])
    assert np.linalg.norm(new[0] - new[1]) < 0.02 * radius
    assert np.linalg.norm(new[0] - new[2]) > 1.99 * radius


def test_seasons_only_where_they_repeat() -> None:
    start = pd.Timestamp("2020-01-01")
    hours = pd.date_range(start, periods=100, freq="5h")
    cases = {
        "one year": (pd.date_range(start, periods=100, freq="5D"), 1),
        "always New Year": (pd.to_datetime([f"{year}-01-01" for year in range(1950, 2020)]), 1),
        "hours": (hours, 3),
        "one day": (pd.date_range(start, periods=100, freq="5min"), 1),
        "both": (pd.date_range(start, periods=300, freq="101h"), 5),
    }
    for name, (cells, n_features) in cases.items():
        assert TableEncoder().fit({"d": cells}).transform({"d": cells}).shape[1] == n_features, name


def test_logarithms_of_long_tails_only() -> None:
    rng = np.random.default_rng(0)
    table = {
        "lognormal": rng.lognormal(3, 1.5, 500),
        "pareto": 1 + rng.pareto(1.2, 500),
        "normal": rng.normal(100, 10, 500),
        "uniform": rng.random(500),
        "exponential": rng.exponential(size=500),
        "clusters": np.where(np.arange(500) % 2, 1.0, 100.0) + rng.normal(0, 0.1, 500),
        "negative": -rng.lognormal(3, 1.5, 500),
        "zeros": np.floor(rng.lognormal(0, 1.5, 500)),
    }
    encoder = TableEncoder().fit(table)
    taken = {column.name for column in encoder.columns_ if "logarithm" in column.becomes}
    assert taken == {"lognormal", "pareto"}
    assert "logarithm" in (encoder.columns_[-1].warning or "")
    encoded = encoder.transform(table)
    np.testing.assert_allclose(encoded[:, 0], np.log(table["lognormal"]))
    np.testing.assert_array_equal(encoded[:, 2], table["normal"])

    assert not any("log" in c.becomes for c in TableEncoder(log=False).fit(table).columns_)
    named = TableEncoder(log=["zeros"]).fit(table)
    np.testing.assert_allclose(named.transform(table)[:, -1], np.log(table["zeros"] + 0.5))
    with pytest.raises(TableError, match="'negative' has values below 0"):
        TableEncoder(log=["negative"]).fit(table)
    words = {"x": ["a", "b"] * 20, "y": table["normal"][:40]}
    with pytest.raises(TableError, match="'x' is not a number and has no logarithm"):
        TableEncoder(log=["x"]).fit(words)
    with pytest.warns(SGPMICWarning, match="1 cells? of 'lognormal'"):
        later = encoder.transform({**table, "lognormal": [-1.0, *table["lognormal"][1:]]})
    assert np.isnan(later[0, 0])


# ------------------------------------------------------------------------------- new rows


def test_every_type_of_table_gives_the_same() -> None:
    table = mixed()
    text = {name: [str(cell) for cell in cells] for name, cells in table.items()}
    expected = TableEncoder().fit_transform(table)
    rows = np.column_stack([np.asarray(cells, object) for cells in table.values()])
    for other in (
        pd.DataFrame(table),
        pl.DataFrame(table),
        pa.table(table),
        pa.table(text),
        pd.DataFrame(table).astype({"color": "category"}),
        rows,
    ):
        np.testing.assert_allclose(TableEncoder().fit_transform(other), expected, rtol=1e-12)
        np.testing.assert_allclose(TableEncoder().fit(table).transform(other), expected, rtol=1e-12)


def test_a_table_with_empty_chunks() -> None:
    chunks = pa.chunked_array([[1.5, 2.5], [], [4.0]], pa.float64())
    encoded = TableEncoder().fit_transform(pa.table({"a": chunks, "b": [1.0, 7.0, 2.0]}))
    assert encoded.tolist() == [[1.5, 1.0], [2.5, 7.0], [4.0, 2.0]]


def test_missing_cells_and_unseen_levels_are_missing() -> None:
    table = mixed()
    encoder = TableEncoder().fit(table)
    new = {
        "height": [170.0, None, 170.0],
        "weight": [70.0, 70.0, 70.0],
        "color": ["red", "?", "pink"],
        "sex": ["male", "male", "other"],
        "port": ["S", "S", None],
    }
    with pytest.warns(SGPMICWarning, match=r"'color' .*: 'pink'; .* 'sex' .*: 'other'") as caught:
        encoded = encoder.transform(new)
    assert len(caught) == 1
    gaps = [[np.isnan(encoded[i, encoder.source_ == j]).all() for j in range(5)] for i in range(3)]
    assert gaps == [[False] * 5, [True, False, True, False, False], [False, False] + [True] * 3]
    for j in range(5):
        own = np.isnan(encoded[:, encoder.source_ == j])
        assert (own.all(axis=1) == own.any(axis=1)).all()


def test_columns_are_found_by_name() -> None:
    table = mixed()
    encoder = TableEncoder().fit(table)
    expected = encoder.transform(table)
    shuffled = {name: table[name] for name in reversed(table)} | {"extra": ["?"] * 120}
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(encoder.transform(shuffled), expected)
    del shuffled["color"]
    with pytest.warns(SGPMICWarning, match="no column 'color'"):
        encoded = encoder.transform(shuffled)
    color = encoder.source_ == 2
    assert np.isnan(encoded[:, color]).all()
    np.testing.assert_array_equal(encoded[:, ~color], expected[:, ~color])
    with pytest.raises(TableError, match="but none of"):
        encoder.transform({"extra": [1, 2]})
    with pytest.raises(ValueError, match="expecting 5 features"):
        encoder.transform(np.zeros((2, 4)))


def test_new_rows_that_cannot_be_read_are_named_in_one_error() -> None:
    encoder = TableEncoder().fit({**mixed(), "day": ["2024-01-01", "2024-02-01"] * 60})
    new = {**mixed(), "height": ["tall"] * 120, "day": ["soon"] * 120}
    with pytest.raises(TableError, match=r"2 columns .*'height' .*'tall' .*'day' .*'soon'"):
        encoder.transform(new)


def test_rows_are_read_as_those_of_fit() -> None:
    table = {"price": ["1,5", "2,25", "3,75"] * 5, "day": ["31/12/2024", "01/02/2024"] * 7 + [""]}
    encoder = TableEncoder().fit(table)
    encoded = encoder.transform({"price": ["1,234"], "day": ["03/04/2024"]})
    assert encoded[0, 0] == 1.234
    assert encoded[0, 1] == (date(2024, 4, 3) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (["1.5", "2.25"], ["1.5", "47,05"]),
        (["1,5", "2,25"], ["47,05", "1,118.32"]),
        (["01/02/2024", "12/31/2024"], ["01/02/1970", "31/12/1970"]),
    ],
)
def test_new_rows_in_another_notation_are_refused(known: list[str], new: list[str]) -> None:
    with pytest.raises(TableError, match=r"in fit, but now has .* \(row 2\): .*as in fit"):
        TableEncoder().fit({"x": known * 9}).transform({"x": new})


def test_set_output_and_clone() -> None:
    table = pd.DataFrame(mixed(), index=np.arange(120) + 7)
    encoder = clone(TableEncoder(kinds={"port": "category"}, drop=("weight",)))
    encoder.set_output(transform="pandas")
    frame = encoder.fit_transform(table)
    assert list(frame.columns) == list(encoder.get_feature_names_out())
    assert frame.columns[-1].startswith("port=")
    assert (frame.index == table.index).all()
    assert not any(column.startswith("weight") for column in frame.columns)


def test_names_of_features_are_all_different() -> None:
    table = {"a=x": np.arange(20.0) ** 2, "a": ["y", "x", "y", "x", "x"] * 4}
    assert list(TableEncoder().fit(table).get_feature_names_out()) == ["a=x", "a=y"]
    table["a=y"] = np.arange(20.0) ** 3
    assert list(TableEncoder().fit(table).get_feature_names_out()) == ["a=x", "a=y", "a=y (2)"]


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        ({"a": [1.0] * 9, "b": ["x"] * 9}, "add columns with more than one value"),
        ({"a": list(range(30))}, "declare what they are"),
        ({"a": [f"n{i}" for i in range(30)], "b": [1.0] * 30}, "declare what they are, if"),
    ],
)
def test_a_table_with_nothing_to_learn_from(table: dict[str, Any], remedy: str) -> None:
    encoder = TableEncoder()
    with pytest.raises(TableError, match=rf"no column is left .*'a' \(.*; {remedy}"):
        encoder.fit(table)
    with pytest.raises(NotFittedError):
        encoder.transform(table)


def test_tables_that_are_none() -> None:
    with pytest.raises(TypeError, match="sparse"):
        TableEncoder().fit(csr_array(np.eye(3)))
    with pytest.raises(TableError, match="equally long"):
        TableEncoder().fit({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"of 1 dimension\."):
        TableEncoder().fit(np.arange(3.0))
    with pytest.raises(ValueError, match="a dict of columns or a 2-D array, got str"):
        TableEncoder().fit("table.csv")
    twice = pd.DataFrame(np.eye(3), columns=["a", "b", "a"])
    with pytest.raises(TableError, match="columns 1 and 3 are both named 'a'"):
        TableEncoder().fit(twice)


# ------------------------------------------------------------------------------- storing


def rich() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        **mixed(),
        "income": rng.lognormal(8, 1.5, 120),
        "when": [f"{day}" for day in pd.date_range("2020-01-01", periods=120, freq="500h")],
        "size": ["low", "high", "medium"] * 40,
        "member": ["yes", "no"] * 60,
        "id": [f"K{i}" for i in range(120)],
        "age": [999, 999, *rng.integers(18, 80, 118)],
    }


def test_a_stored_encoder_is_the_same_encoder() -> None:
    table = rich()
    order = ("ordered", ("low", "medium", "high"))
    encoder = TableEncoder(kinds={"size": order}, log=("income",), drop=("weight",)).fit(table)
    stored = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert stored.columns_ == encoder.columns_
    assert stored.get_params() == encoder.get_params()
    assert stored.has_categories_
    np.testing.assert_array_equal(stored.source_, encoder.source_)
    np.testing.assert_array_equal(stored.feature_names_in_, encoder.feature_names_in_)
    np.testing.assert_array_equal(stored.get_feature_names_out(), encoder.get_feature_names_out())
    np.testing.assert_array_equal(stored.transform(table), encoder.transform(table))


def change(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(state: dict[str, Any]) -> None:
        place: Any = state
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return apply


DAMAGE = {
    "version": change("version", value=99),
    "no columns": change("columns", value=[]),
    "columns of text": change("columns", value="abc"),
    "kind": change("columns", 0, "kind", value="color"),
    "name": change("columns", 0, "name", value=3),
    "same name": change("columns", 0, "name", value="weight"),
    "features": change("columns", 0, "features", value=["a", "b"]),
    "same feature": change("columns", 0, "features", value=["weight"]),
    "count": change("columns", 0, "n_rows", value=-1),
    "encoding": change("columns", 0, "encoding", "encoding", value="os.system"),
    "divisor 0": change("columns", 0, "encoding", "divisor", value=0),
    "divisor NaN": change("columns", 0, "encoding", "divisor", value=float("nan")),
    "divisor text": change("columns", 0, "encoding", "divisor", value="1"),
    "decimal": change("columns", 0, "encoding", "decimal", value="x"),
    "more": change("columns", 0, "encoding", "more", value=1),
    "shares": change("columns", 2, "encoding", "shares", value=[0.5, 0.3, 0.3]),
    "levels": change("columns", 2, "encoding", "levels", value=["red", "RED", "blue"]),
    "flag": change("has_categories", value=1),
    "min_frequency": change("min_frequency", value=7),
    "drop": change("drop", value=["nothing"]),
    "kinds": change("kinds", value={"height": "color"}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_refused(damage: str) -> None:
    state = json.loads(json.dumps(TableEncoder().fit(mixed()).to_dict()))
    TableEncoder.from_dict(copy.deepcopy(state))
    DAMAGE[damage](state)
    with pytest.raises(ValueError, match="damaged"):
        TableEncoder.from_dict(state)


STATE = json.dumps(TableEncoder().fit(rich()).to_dict())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@settings(max_examples=200)
@given(st.data())
def test_no_damage_ends_in_a_traceback(data: st.DataObject) -> None:
    state = json.loads(STATE)
    place: Any = state
    while True:
        steps = list(place) if isinstance(place, dict) else list(range(len(place)))
        step = data.draw(st.sampled_from(steps))
        if isinstance(place[step], dict | list) and place[step] and data.draw(st.booleans()):
            place = place[step]
            continue
        place[step] = data.draw(JSON)
        break
    try:
        encoder = TableEncoder.from_dict(state)
    except ValueError:
        return
    with warnings.catch_warnings(action="ignore", category=SGPMICWarning):
        encoder.transform(rich())


def test_what_was_encoded_comes_back() -> None:
    table = {
        "size": [1.5, None, 9.0, 8.5, 2.0, 3.0],
        "color": ["red", "red", "blue", "green", None, "blue"],
        "grade": ["low", "high", "medium", None, "low", "high"],
        "kept": ["yes", "no", "no", "yes", "yes", None],
        "sex": ["f", "m", "m", "f", "m", None],
        "day": ["2024-03-01", "2021-12-31", None, "2023-06-15", "2022-01-01", "2020-02-29"],
    }
    kinds = {"color": "category", "sex": "category"}
    encoder = TableEncoder(kinds=kinds, min_frequency=0).fit(table)
    found = encoder.inverse_transform(encoder.transform(table))
    assert list(found) == list(table)
    np.testing.assert_allclose(found["size"], [1.5, np.nan, 9.0, 8.5, 2.0, 3.0])
    for name in ("color", "grade", "sex"):
        assert list(found[name]) == table[name]
    assert list(found["kept"]) == [True, False, False, True, True, None]
    days = np.array([day or "NaT" for day in table["day"]], dtype="datetime64[s]")
    np.testing.assert_array_equal(found["day"], days)


def test_expectations_become_the_nearest_levels() -> None:
    table = {"amount": [1.0, 10.0, 100.0, 1000.0], "level": ["low", "medium", "high", "low"]}
    encoder = TableEncoder(log=["amount"]).fit(table)
    encoded = encoder.transform(table)
    between = 0.9 * encoded[:1] + 0.1 * encoded[2:3]
    found = encoder.inverse_transform(between)
    assert found["level"][0] == "low"
    assert found["amount"][0] == pytest.approx(10.0**0.2)
    assert encoder.inverse_transform(9.0 * encoded[2:3])["level"][0] == "high"
    with pytest.raises(ValueError, match="2 features"):
        encoder.inverse_transform(np.zeros((3, 5)))
