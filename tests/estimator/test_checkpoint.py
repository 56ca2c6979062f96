"""Learning that is interrupted and resumed ends where it would have ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpmic import SGPMIC, Computation, Progress
from sgpmic.process_group import ProcessGroup
from sgpmic.storage.checkpoints import Checkpoint
from sgpmic.storage.model_file import ModelFileError


class Interrupted(Exception):
    pass


def blobs(seed: int = 0) -> np.ndarray:
    rng = np.random.RandomState(seed)
    return np.vstack([rng.standard_normal((20, 3)) + 4.0 * k for k in range(3)])


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "committee": None,
        "n_clusters": 3,
        "n_inducing": 10,
        "max_iter": 4,
        "tol": 0.0,
        "random_state": 3,
    } | changes


def stop_at(start: int, number: int) -> Callable[[Progress], None]:
    def callback(progress: Progress) -> None:
        if (progress.start, progress.iteration) == (start, number):
            raise Interrupted

    return callback


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(first: SGPMIC, second: SGPMIC) -> None:
    for name in ("labels_", "memberships_", "embedding_", "means_", "covariances_", "inducing_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.lower_bound_ == second.lower_bound_
    assert first.converged_ == second.converged_
    for name, values in first.history_.items():
        if name != "seconds":
            assert values == second.history_[name], name


@pytest.fixture(scope="module")
def straight() -> SGPMIC:
    return SGPMIC().set_params(**settings(start__n_init=2)).fit(blobs())


@pytest.mark.parametrize(("start", "number"), [(0, 1), (0, 3), (0, 4), (1, 1), (1, 4)])
@pytest.mark.parametrize("every", [1, 3])
def test_an_interrupted_fit_ends_the_same(
    straight: SGPMIC, tmp_path: Path, start: int, number: int, every: int
) -> None:
    place = {
        "computation__checkpoint": tmp_path / "fit.ckpt",
        "computation__checkpoint_every": every,
        "start__n_init": 2,
    }
    with pytest.raises(Interrupted):
        SGPMIC().set_params(**settings(em__callbacks=[stop_at(start, number)], **place)).fit(
            blobs()
        )
    seen: list[tuple[int, int]] = []
    again = SGPMIC().set_params(
        **settings(em__callbacks=[lambda p: seen.append((p.start, p.iteration))], **place)
    )
    same(straight, again.fit(blobs()))
    # The iteration that was interrupted was not kept, and with every=3 some before it were not.
    kept = 4 * start + (number - 1) // every * every
    assert len(seen) == 8 - kept
    same(straight, again.fit(blobs()))
    assert len(seen) == 8 - kept, "a finished fit has nothing left to learn"


@pytest.mark.slow
def test_from_a_processor_to_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows lie in other blocks there, with other padding."""
    place: dict[str, Any] = {"em__optimizer": "lbfgs", "em__m_steps": 4, "mapping": "per_cluster"}
    expected = SGPMIC().set_params(**settings(**place)).fit(blobs())
    place["computation__checkpoint"] = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        SGPMIC().set_params(**settings(em__callbacks=[stop_at(0, 3)], **place)).fit(blobs())
    monkeypatch.setattr(
        "sgpmic.process_group.gpu_memory_on", lambda device: 2**30
    )  # as a GPU has it
    seen: list[int] = []
    moved = (
        SGPMIC()
        .set_params(**settings(em__callbacks=[lambda p: seen.append(p.iteration)], **place))
        .fit(blobs())
    )
    assert seen == [3, 4]
    np.testing.assert_array_equal(moved.labels_, expected.labels_)
    np.testing.assert_allclose(moved.lower_bound_, expected.lower_bound_, rtol=1e-6)
    assert moved.embedding_.shape == expected.embedding_.shape


def test_a_start_that_had_settled_is_not_resumed(tmp_path: Path) -> None:
    place = {"computation__checkpoint": tmp_path / "fit.ckpt", "max_iter": 20, "tol": 0.2}
    first = SGPMIC().set_params(**settings(**place)).fit(blobs())
    assert first.converged_
    assert first.n_iter_ < 20
    same(first, SGPMIC().set_params(**settings(**place)).fit(blobs()))


def test_without_a_seed_the_seeds_that_were_drawn_are_kept(tmp_path: Path) -> None:
    place = {
        "computation__checkpoint": tmp_path / "fit.ckpt",
        "random_state": None,
        "start__n_init": 2,
    }
    with pytest.raises(Interrupted):
        SGPMIC().set_params(**settings(em__callbacks=[stop_at(1, 1)], **place)).fit(blobs())
    first = SGPMIC().set_params(**settings(**place)).fit(blobs())
    same(first, SGPMIC().set_params(**settings(**place)).fit(blobs()))


@pytest.mark.parametrize(
    ("changes", "data", "words"),
    [
        ({"n_inducing": 11}, 0, "different settings"),
        ({"random_state": 4}, 0, "different settings"),
        ({"start__embedding": np.zeros((60, 2))}, 0, "different settings"),
        ({}, 1, "different data"),
        ({"tol": 0.5}, 1, "different data and settings"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], data: int, words: str
) -> None:
    place = {"computation__checkpoint": tmp_path / "fit.ckpt"}
    SGPMIC().set_params(**settings(max_iter=1, **place)).fit(blobs())
    before = contents(tmp_path)
    with pytest.raises(ModelFileError, match=words):
        SGPMIC().set_params(**settings(**({"max_iter": 1} | changes), **place)).fit(blobs(data))
    assert contents(tmp_path) == before


def test_other_files_are_refused_and_left_alone(straight: SGPMIC, tmp_path: Path) -> None:
    model, rubbish = tmp_path / "model.sgpmic", tmp_path / "rubbish"
    straight.save(model)
    rubbish.write_bytes(b"rubbish")
    for path in (model, rubbish):
        before = path.read_bytes()
        with pytest.raises(ModelFileError, match="is not a folder that you may write to"):
            SGPMIC().set_params(**settings(computation__checkpoint=path)).fit(blobs())
        assert path.read_bytes() == before


def test_iterations_are_sorted_by_number(tmp_path: Path) -> None:
    computation = Computation(checkpoint=str(tmp_path))
    checkpoint = Checkpoint(computation, blobs(), ProcessGroup(60), SGPMIC().get_params())
    numbers = [999, 999_999, 1_000_000]
    for number in numbers:
        checkpoint._folder(number).mkdir()
    assert checkpoint._iterations() == numbers


def test_a_checkpoint_is_no_model(tmp_path: Path) -> None:
    SGPMIC().set_params(**settings(max_iter=1, computation__checkpoint=tmp_path / "fit.ckpt")).fit(
        blobs()
    )
    with pytest.raises(ModelFileError):
        SGPMIC.load(next((tmp_path / "fit.ckpt").rglob("rest.sgpmic")))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"computation__checkpoint": 3}, TypeError),
        ({"computation__checkpoint": "x", "computation__checkpoint_every": 0}, ValueError),
    ],
)
def test_bad_parameters(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        SGPMIC().set_params(**settings(**changes)).fit(blobs())


def test_a_saved_model_does_not_drag_its_checkpoint_along(tmp_path: Path) -> None:
    model = (
        SGPMIC()
        .set_params(**settings(max_iter=1, computation__checkpoint=tmp_path / "fit.ckpt"))
        .fit(blobs())
    )
    model.save(tmp_path / "model.sgpmic")
    assert SGPMIC.load(tmp_path / "model.sgpmic").computation.checkpoint is None
