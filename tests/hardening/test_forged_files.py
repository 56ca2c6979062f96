"""Model files that are whole but forged, and records of runs that are damaged: one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.helpers import here, values

from sgpmic import SGPMIC
from sgpmic.storage.model_file import ModelFileError, read_model, write_model
from sgpmic.storage.run_folder import RunFolder, RunFolderError

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


def forge(path: Path, change: Callable[[Header, Arrays], None]) -> None:
    """Change what a model file says; its checksums are right."""
    header, arrays = read_model(path)
    change(header, arrays)
    write_model(path, header, arrays)


def cell(name: str, value: float, place: Any = 0) -> Callable[[Header, Arrays], None]:
    def change(header: Header, arrays: Arrays) -> None:
        if arrays[name].ndim:
            arrays[name].reshape(-1)[place] = value
        else:
            arrays[name] = np.array(value, arrays[name].dtype)

    return change


def replaced(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[..., None]:
    def change(header: Header, arrays: Arrays) -> None:
        arrays[name] = make(arrays[name])

    return change


def said(value: Any, *way: Any) -> Callable[[Header, Arrays], None]:
    """Put another value at a place in the header."""

    def change(header: Header, arrays: Arrays) -> None:
        target: Any = header
        for step in way[:-1]:
            target = target[step]
        target[way[-1]] = value

    return change


FORGED: dict[str, Callable[[Header, Arrays], None]] = {
    **{
        f"{name} nan": cell(name, np.nan)
        for name in (
            *("offset", "scale", "mean_variance", "embedding", "memberships", "inducing", "beta"),
            *("mean_weights", "precision_loss", "A_inverse", "jitter", "weights", "means"),
            *("covariances", "reference.points", "reference.votes", "strength"),
            *("kernel.variance", "kernel.gamma", "kernel.bias", "kernel.white"),
        )
    },
    # Training rows may have gaps, but not only gaps.
    "reference.rows inf": cell("reference.rows", np.inf),
    "a row of gaps": replaced("reference.rows", lambda Y: np.full_like(Y, np.nan)),
    **{f"{name} 0": cell(name, 0.0) for name in ("scale", "beta", "mean_variance")},
    **{f"{name} -1": cell(name, -1.0) for name in ("jitter", "strength", "kernel.variance")},
    "negative weight": cell("weights", -0.2),
    "memberships of more than one": cell("memberships", 7.0),
    "noise 0": cell("normals.noise", 0.0),
    "share of more than one": cell("mapping_share", 1.5),
    "no densities": replaced("left_out_log_density", lambda densities: densities[:0]),
    "an axis too few": replaced("normals.axes", lambda V: V[:, 1:]),
    "no votes": replaced("reference.votes", np.zeros_like),
    "indefinite covariance": replaced("covariances", np.negative),
    "order out of range": cell("reference.order", 10**9),
    "negative order": cell("reference.order", -5),
    "keys not sorted": replaced("reference.keys", lambda keys: keys[::-1].copy()),
    "another type": replaced("embedding", lambda X: X.astype(np.float32)),
    "whole numbers": replaced("means", lambda X: X.astype(np.int64)),
    "a row too few": replaced("memberships", lambda S: S[:-1]),
    "a dimension too many": replaced("weights", lambda w: w[:, None]),
    "no rows": replaced("embedding", lambda X: X[:0]),
    "no start labels": lambda header, arrays: arrays.__delitem__("start.0.labels"),
    "labels of words": replaced("start.0.labels", lambda x: x.astype(np.float64)),
    "unknown kernel": said("os.system", "kernel", "name"),
    "kernel of no name": said([], "kernel", "name"),
    "unknown scaling": said("every", "scaling"),
    "bound of words": said("high", "attributes", "lower_bound_"),
    "other features": said(7, "attributes", "n_features_in_"),
    "one name twice": said(["height", "height", "depth"], "feature_names"),
    "names of numbers": said([1, 2, 3], "feature_names"),
    "history of words": said({"bound": ["high"]}, "history"),
    "starts of words": said(["first"], "starts"),
    "committee of words": said("all", "committee"),
    "support of words": said("much", "support"),
    "parameters of words": said("all", "parameters"),
    "unknown parameter": said(1, "parameters", "n_jobs"),
    "clusters below one": said(0, "parameters", "n_clusters"),
    "clusters of words": said("many", "parameters", "n_clusters"),
    "unknown settings": said({"settings": "Popen", "values": {}}, "parameters", "em"),
    "settings of another kind": said({"settings": "Start", "values": {}}, "parameters", "em"),
    "a setting that is not": said({"settings": "EM", "values": {"x": 1}}, "parameters", "em"),
    "an array that is not": said({"array": "nowhere"}, "parameters", "n_clusters"),
    "a list": said([[[]]], "parameters", "kernel"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_model_is_refused(finished: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.sgpmic"
    path.write_bytes((finished / "model.sgpmic").read_bytes())
    forge(path, FORGED[kind])
    with pytest.raises(ModelFileError, match=r"model\.sgpmic") as caught:
        SGPMIC.load(path)
    assert "\n" not in str(caught.value)


def test_what_a_model_may_say_still_loads(finished: Path, tmp_path: Path) -> None:
    """The forger's tools themselves break nothing."""
    path = tmp_path / "model.sgpmic"
    path.write_bytes((finished / "model.sgpmic").read_bytes())
    forge(path, said(4, "parameters", "n_clusters"))
    assert SGPMIC.load(path).n_clusters == 4
    # A process of several has labels of its own rows, and a sample of all.
    forge(path, replaced("start.0.labels", lambda labels: labels[:30]))
    assert len(SGPMIC.load(path).starts_[0]["labels"]) == 30


def test_no_file_chooses_a_path_a_callback_or_a_device(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.sgpmic"
    path.write_bytes((finished / "model.sgpmic").read_bytes())
    trap = tmp_path / "trap"

    def change(header: Header, arrays: Arrays) -> None:
        parameters = header["parameters"]
        parameters["computation"]["values"] |= {"checkpoint": str(trap), "device": "gpu"}
        parameters["em"]["values"]["callbacks"] = ["print"]

    forge(path, change)
    model = SGPMIC.load(path)
    assert model.computation.checkpoint is None
    assert model.computation.device == "auto"
    assert model.em.callbacks == ()
    model.set_params(max_iter=1, n_inducing=10).fit(values())
    assert not trap.exists()


DAMAGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda record: [record],
    "a number": lambda record: 7,
    "no format": lambda record: {k: v for k, v in record.items() if k != "format"},
    "a later format": lambda record: record | {"format": 99},
    "a format of its own": lambda record: record | {"format": {"x": [1] * 1000}},
    "no data": lambda record: {k: v for k, v in record.items() if k != "data"},
    "data of words": lambda record: record | {"data": "all"},
    "features of numbers": lambda record: record | {"data": record["data"] | {"features": [1]}},
    "features of words": lambda record: record | {"data": record["data"] | {"features": "abc"}},
    "no features": lambda record: record | {"data": record["data"] | {"features": []}},
    "other features": lambda record: (
        record | {"data": record["data"] | {"features": ["depth", "width", "height"]}}
    ),
    "an id of a list": lambda record: record | {"data": record["data"] | {"id": []}},
    "table of numbers": lambda record: record | {"table": 7},
    "table of nothing": lambda record: record | {"table": "\0"},
    "settings of words": lambda record: record | {"settings": "all"},
    "seconds of words": lambda record: record | {"seconds": {"learning": "long"}},
    "versions of numbers": lambda record: record | {"versions": {"jax": 1}},
    "warnings of numbers": lambda record: record | {"warnings": [1]},
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_record_is_refused(run: Path, table: Path, tmp_path: Path, kind: str) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(DAMAGED[kind](record)))
    for command in (
        ("predict", run, table, "--out", tmp_path / "o.csv"),
        ("report", run),
        ("fit", table, "-k", 3, "--out", run, "--resume"),
    ):
        done = here(*command)
        assert done.exception is None or isinstance(done.exception, SystemExit), command
        if command[0] == "report" or kind != "table of nothing":  # which only a report reads
            assert done.exit_code == 2 or command[0] == "fit"
        assert len(done.output) < 1000


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}', b"null", b"\0" * 100],
    ids=lambda content: repr(content[:10]),
)
def test_a_record_that_is_no_record_is_refused(run: Path, content: bytes) -> None:
    (run / "run.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"run\.json is damaged"):
        RunFolder(run).read_record()


class Interrupted(Exception):
    pass


def with_checkpoint(folder: Path, *callbacks: Callable[[Any], None]) -> SGPMIC:
    settings = {"n_inducing": 10, "max_iter": 3, "committee": None, "random_state": 0}
    model = SGPMIC(3).set_params(**settings, em__callbacks=callbacks)
    return model.set_params(computation__checkpoint=folder)


def interrupt(progress: Any) -> None:
    if progress.iteration == 2:
        raise Interrupted


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a fit that was interrupted in its second iteration."""
    folder = tmp_path_factory.mktemp("fit") / "checkpoint"
    with pytest.raises(Interrupted):
        with_checkpoint(folder, interrupt).fit(values())
    return folder


#: Changes of ``rest.sgpmic``, where the array 0.6 holds log β and 0.8 the weights.
FORGED_RESTS: dict[str, Callable[[Header, Arrays], None]] = {
    "no owner": lambda header, arrays: header.__delitem__("belongs_to"),
    "owners in a list": said([], "belongs_to"),
    "starts of words": said("all", "outcomes"),
    "starts of numbers": said([3], "outcomes"),
    "an array that is not there": lambda header, arrays: arrays.__delitem__("0.8"),
    "history of words": said(["long"], "outcomes", 0, "history"),
    "history without entries": said([{}], "outcomes", 0, "history"),
    "notes of numbers": said([3], "outcomes", 0, "notes"),
    "bound of words": said("high", "outcomes", 0, "bound"),
    "no seeds": said(None, "seeds"),
    "a seed too few": lambda header, arrays: header["seeds"].pop(),
    "a seed too many": lambda header, arrays: header["seeds"].append(3),
    "a negative seed": said(-1, "seeds", 0),
    "no starts": said([], "outcomes"),
    "more starts than planned": lambda header, arrays: header["outcomes"].extend(
        header["outcomes"] * 99
    ),
    "β nan": cell("0.6", np.nan),
    "weights nan": cell("0.8", np.nan),
    "weights of another shape": replaced("0.8", lambda weights: weights[:-1]),
    "weights of another type": replaced("0.8", lambda weights: weights.astype(np.float32)),
}
FORGED_ROWS: dict[str, Callable[[Header, Arrays], None]] = {
    "X nan": cell("0.X", np.nan),
    "X of too many dimensions": replaced("0.X", lambda X: np.hstack([X, X])),
    "X of one dimension": replaced("0.X", lambda X: X[:, 0]),
    "X of none": replaced("0.X", lambda X: X[0, 0]),
    "no S": lambda header, arrays: arrays.__delitem__("0.S"),
    "a row too few": replaced("0.S", lambda S: S[:-1]),
}


@pytest.mark.parametrize("kind", [*FORGED_RESTS, *FORGED_ROWS])
def test_a_forged_checkpoint_is_refused(checkpoint: Path, tmp_path: Path, kind: str) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")
    change = FORGED_RESTS.get(kind) or FORGED_ROWS[kind]
    (path,) = folder.glob(
        "iteration-*/rest.sgpmic" if kind in FORGED_RESTS else "iteration-*/rows-*"
    )
    forge(path, change)
    with pytest.raises(ModelFileError, match="delete it to start over") as caught:
        with_checkpoint(folder).fit(values())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_checkpoint_with_other_deviations_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with pytest.raises(Interrupted):
        with_checkpoint(folder, interrupt).set_params(latent="variational").fit(values())
    (path,) = folder.glob("iteration-*/rows-*")
    forge(path, replaced("0.log_x_std", lambda log_x_std: log_x_std[:, :1]))
    with pytest.raises(ModelFileError, match="delete it to start over"):
        with_checkpoint(folder).set_params(latent="variational").fit(values())


def test_other_files_beside_a_checkpoint_s_do_no_harm(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")
    (rows,) = folder.glob("iteration-*/rows-*")
    for name in ("rows-x-y.sgpmic", "rows--1-60.sgpmic", "rows-0-60-1.sgpmic"):
        shutil.copy(rows, rows.with_name(name))
    assert with_checkpoint(folder).fit(values()).n_iter_ == 3
