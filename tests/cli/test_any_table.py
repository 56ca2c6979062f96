"""Models of tables with columns of every kind: their files, Python, and any table at all."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from tests.cli.helpers import here

from sgpmic import SGPMIC
from sgpmic.storage.model_file import ModelFileError, read_model, write_model
from sgpmic.tables.dataset import Dataset, reread, without_empty_rows
from sgpmic.tables.encoder import describe
from sgpmic.tables.errors import TableError

N = 24


def fit(path: Path, out: Path, *options: object) -> Any:
    return here("fit", path, "-k", 2, "--max-iter", 1, "--inducing", 10, "--out", out, *options)


def mixed_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    group = np.arange(N) % 2
    frame = pd.DataFrame(
        {
            "customer": np.arange(100, 100 + N),
            "height": 10.0 * group + rng.normal(size=N),
            "color": np.where(
                group == 0, "red", np.array(["green", "blue"])[np.arange(N) // 2 % 2]
            ),
            "size": np.array(["low", "medium", "high"])[np.arange(N) % 3],
            "price": (100.0 * group + rng.normal(size=N)).round(2),
        }
    )
    frame.loc[3, "height"] = np.nan
    frame.loc[5, "color"] = None
    return frame


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    mixed_frame().to_csv(folder / "t.csv", index=False)
    done = fit(folder / "t.csv", folder / "run", "--label", "price")
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_python_takes_the_users_rows(run: Path) -> None:
    model = SGPMIC.load(run / "model.sgpmic")
    frame = mixed_frame()
    written = pd.read_csv(run / "labels.csv")
    np.testing.assert_array_equal(model.predict(frame), written["cluster"])
    moved = frame[["size", "height", "color"]].rename(columns={"price": "cost"})
    np.testing.assert_array_equal(model.predict_proba(moved), model.predict_proba(frame))
    new = pd.DataFrame({"height": [10.0], "color": ["purple"], "size": ["LOW"]})
    with pytest.warns(match="'purple'"):
        unseen = model.predict_proba(new)
    missing = model.predict_proba(new.assign(color=None))
    np.testing.assert_array_equal(unseen, missing)
    names = list(model.encoder_.get_feature_names_out())
    assert "color=green" in names


def test_a_model_saved_again_says_the_same(run: Path, tmp_path: Path) -> None:
    model = SGPMIC.load(run / "model.sgpmic")
    model.save(tmp_path / "again.sgpmic")
    again = SGPMIC.load(tmp_path / "again.sgpmic")
    np.testing.assert_array_equal(
        model.predict_proba(mixed_frame()), again.predict_proba(mixed_frame())
    )


def damage(state: dict[str, Any], kind: str) -> Any:
    if kind == "a word":
        return "encoder"
    if kind == "a feature less":
        state["columns"] = [c for c in state["columns"] if c["name"] != "height"]
    if kind == "no columns":
        del state["columns"]
    if kind == "a divisor of nothing":
        next(c for c in state["columns"] if c["name"] == "height")["encoding"]["divisor"] = 0.0
    return state


@pytest.mark.parametrize("kind", ["a word", "a feature less", "no columns", "a divisor of nothing"])
def test_a_forged_encoder_is_refused(run: Path, tmp_path: Path, kind: str) -> None:
    header, arrays = read_model(run / "model.sgpmic")
    header["encoder"] = damage(header["encoder"], kind)
    write_model(tmp_path / "forged.sgpmic", header, arrays)
    with pytest.raises(ModelFileError, match="fit and save the model again"):
        SGPMIC.load(tmp_path / "forged.sgpmic")


def test_profiles_speak_of_columns_and_levels(run: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    model = SGPMIC.load(run / "model.sgpmic")
    frame = mixed_frame()
    for table in (None, frame):
        axes = model.plot_profiles(table, n_features=20).ax_
        names = [text.get_text() for text in axes.get_yticklabels()]
        assert sorted(names) == sorted(
            ["height", *(f"color: {c}" for c in ("red", "green", "blue"))]
            + [f"size: {s}" for s in ("low", "medium", "high")]
        )
        shown = np.asarray(axes.images[0].get_array())[names.index("color: red")]
        mine = frame["color"].notna() & (model.labels_ == 0)
        other = frame["color"].notna() & (model.labels_ != 0)
        shares = [(frame["color"][side] == "red").mean() for side in (mine, other)]
        h = 2 * np.arcsin(np.sqrt(shares[0])) - 2 * np.arcsin(np.sqrt(shares[1]))
        assert shown[0] == pytest.approx(h)


def test_a_continuous_label_is_summarized(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    found = record["result"]["comparison"]
    labels = pd.read_csv(run / "labels.csv")["cluster"]
    price = mixed_frame()["price"]
    assert "purity" not in found
    means = price.groupby(labels).mean()
    within = ((price - means[labels].to_numpy()) ** 2).sum()
    assert found["eta_squared"] == pytest.approx(1 - within / ((price - price.mean()) ** 2).sum())
    assert "not compared as classes" in (run / "report.html").read_text()


def test_rows_without_a_label_are_left_out_of_the_comparison(tmp_path: Path) -> None:
    mixed_frame().to_csv(tmp_path / "t.csv", index=False)
    done = fit(tmp_path / "t.csv", tmp_path / "run", "--label", "color")
    assert "1 (4.2 %)" in done.output  # the missing height, as in the report
    assert "1 row without a label is left out." in " ".join(done.output.split())
    found = json.loads((tmp_path / "run" / "run.json").read_text())["result"]["comparison"]
    labels, known = pd.read_csv(tmp_path / "run" / "labels.csv")["cluster"], mixed_frame()["color"]
    ari = adjusted_rand_score(known.dropna(), labels[known.notna()])
    assert found["adjusted_rand_index"] == pytest.approx(ari)
    assert found["rows_without_label"] == 1


# ------------------------------------------------------------------------------ any table

GAPS = st.sampled_from(["", "NA", "-", "?", "none"])
CELLS = {
    "numbers": st.floats(-1e4, 1e4).map(lambda x: f"{x:.3f}"),
    "tails": st.floats(-3, 12).map(lambda x: f"{np.exp(x):.4f}"),
    "whole": st.integers(-5, 999).map(str),
    "words": st.sampled_from(["red", "green", "Blue", "blue ", "très vert"]),
    "truths": st.sampled_from(["yes", "no", "Yes"]),
    "scale": st.sampled_from(["low", "medium", "high"]),
    "dates": st.dates().map(str),
    "times": st.times().map(lambda t: t.isoformat("minutes")),
    "german": st.floats(0, 1e6).map(lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,"))),
    "percent": st.integers(0, 100).map(lambda x: f"{x} %"),
    "rubbish": st.text("ab1.,-%{}[]\"'é\u202e <>&", max_size=8),
    "constant": st.just("same"),
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    # Two at least: a column by itself has no delimiter, and its spaces look like one.
    for place in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from([*CELLS, "id"]))
        if kind == "id":
            columns[f"{place} id"] = [f"c-{i}" for i in range(N)]
            continue
        cells = CELLS[kind] if draw(st.booleans()) else st.one_of(CELLS[kind], CELLS[kind], GAPS)
        columns[f"{place} {kind}"] = draw(st.lists(cells, min_size=N, max_size=N))
    return columns


@settings(max_examples=150, deadline=None)
@given(tables())
def test_any_table_is_read_or_refused_in_one_sentence(columns: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
        try:
            table = Dataset(path)
            data = table.read(table.fit_columns())
            kept = without_empty_rows(data)[0]
        except TableError as error:
            sentence = str(error)
            assert sentence.startswith(str(path))
            assert "\n" not in sentence
            return
        known = {"features": data.names, "id": None, "label": None}
        again, _ = reread(path, known, data.encoder)
    assert not np.isinf(data.values).any()
    np.testing.assert_array_equal(again.values, kept.values)
    assert [column["name"] for column in data.columns] == list(columns)
    if data.encoder is None:
        assert data.values.shape == (N, len(data.names))
        return
    described = describe(data.encoder, data.values)
    assert described.values.shape == (N, len(described.feature_names))
    for column in described.categories:
        assert column.codes.max() < len(column.levels)
    missing = {c["name"]: c["n_missing"] for c in data.columns}
    for column in described.categories:
        assert (column.codes < 0).sum() == missing[column.name]


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(tables(), st.booleans())
@pytest.mark.slow
def test_any_table_is_fitted_or_refused_in_one_sentence(
    columns: dict[str, list[str]], labeled: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pd.DataFrame(columns).to_csv(folder / "t.csv", index=False)
        options = ("--label", next(iter(columns))) if labeled and len(columns) > 1 else ()
        done = fit(folder / "t.csv", folder / "run", *options)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        if done.exit_code:
            assert done.exit_code == 2
            assert "sgpmic: " in done.output
            return
        assert "</html>" in (folder / "run" / "report.html").read_text()
        again = here("predict", folder / "run", folder / "t.csv", "--out", folder / "new.csv")
        assert again.exit_code == 0, again.output
        before = pd.read_csv(folder / "run" / "labels.csv")["cluster"]
        after = pd.read_csv(folder / "new.csv")["cluster"]
        np.testing.assert_array_equal(before, after)
        drawn = here("report", folder / "run")
        assert drawn.exit_code == 0, drawn.output
