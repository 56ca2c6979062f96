"""Settings objects: immutable, checked when made, set as scikit-learn sets nested parameters."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from tests.estimator.conftest import QUICK

from sgpmic import EM, SGPMIC, Committee, Computation, Start
from sgpmic.kernels import RBF
from sgpmic.learning.settings import Settings

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


def test_few_parameters_are_flat() -> None:
    assert len(SGPMIC().get_params(deep=False)) <= 16


def test_nested_parameters_are_set_in_new_objects() -> None:
    shared = EM()
    model = SGPMIC(em=shared, kernel=RBF(gamma=2.0))
    model.set_params(em__m_steps=3, start__n_neighbors=5, kernel__gamma=0.5, tol=0.1)
    assert (model.em.m_steps, model.start.n_neighbors, model.tol) == (3, 5, 0.1)
    assert model.kernel == RBF(gamma=0.5)
    assert shared.m_steps == 10, "an object that others may have does not change"
    assert model.get_params()["em__m_steps"] == 3
    with pytest.raises(FrozenInstanceError):
        shared.m_steps = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "group", "name"),
    [
        (Committee, "committee", "own_fits"),
        (Computation, "computation", "batch_size"),
        (Start, "start", "selection"),
    ],
)
def test_what_has_no_effect_says_so(settings: type[Settings], group: str, name: str) -> None:
    with pytest.warns(FutureWarning, match=f"{name} no longer has any effect") as told:
        settings(**{name: 1000})
    assert told[0].filename == __file__
    with pytest.warns(FutureWarning, match=f"{name} no longer has any effect"):
        SGPMIC().set_params(**{f"{group}__{name}": 1000})


@pytest.mark.parametrize("name", ["em__m_step", "m_steps", "nothing__here", "em__"])
def test_names_that_are_not_there(name: str) -> None:
    with pytest.raises(ValueError, match="Invalid parameter"):
        SGPMIC().set_params(**{name: 3})


def test_numpy_numbers_are_numbers(table: Floats, quick_fit: Fit) -> None:
    model = SGPMIC(3).set_params(**QUICK, computation__block_size=64, em__prior_strength=0.5)
    numbers = {k: v for k, v in model.get_params().items() if type(v) in (int, float)}
    typed = {k: np.asarray(v)[()] for k, v in numbers.items()}
    del typed["random_state"]
    found, expected = quick_fit(table, **typed), quick_fit(table, **numbers)
    assert len(typed) > 15
    assert not any(isinstance(v, np.generic) for v in vars(clone(found).em).values())
    np.testing.assert_array_equal(found.memberships_, expected.memberships_)


def test_clones_have_the_same_settings() -> None:
    model = SGPMIC(start=Start(pieces="largest"), computation=Computation(block_size=64))
    other = clone(model)
    assert other.start == model.start
    assert other.computation == model.computation
    given = clone(SGPMIC(start=Start(embedding=np.ones((4, 2)))))
    np.testing.assert_array_equal(given.start.embedding, np.ones((4, 2)))
    assert given.start == Start(embedding=np.ones((4, 2)))
    assert given.start not in (Start(), Start(embedding=np.zeros((4, 2))), "isomap")
    assert len({Start(), Start(n_init=1)}) == 1


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: EM(m_steps=-1), ValueError, "m_steps must be a whole number of at least 0"),
        (lambda: EM(jitter="small"), TypeError, "jitter must be a finite number"),
        (lambda: Start(embedding="tsne"), ValueError, "'isomap'"),
        (lambda: Start(unit_variance=1), TypeError, "True or False"),
        (lambda: Computation(device="tpu"), ValueError, "device must be one of 'auto', .*'tpu'"),
        (lambda: Computation(checkpoint=3), TypeError, "path of a folder"),
        (lambda: SGPMIC(computation="cpu").fit([[0], [1]]), TypeError, r"such as Computation\(\)"),
    ],
)
def test_settings_check_themselves(make: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        make()


@pytest.mark.filterwarnings("ignore")
def test_settings_are_stored_but_for_what_belongs_to_a_machine(
    table: Floats, tmp_path: Path
) -> None:
    given = np.random.default_rng(0).normal(size=(60, 2))
    model = SGPMIC(3).set_params(
        **QUICK,
        start__embedding=given,
        em__callbacks=[lambda progress: None],
        computation__checkpoint=tmp_path / "checkpoint",
        computation__device="cpu",
    )
    model.fit(table).save(tmp_path / "model.sgpmic")
    loaded = SGPMIC.load(tmp_path / "model.sgpmic")
    np.testing.assert_array_equal(loaded.start.embedding, given)
    assert loaded.em.m_steps == QUICK["em__m_steps"]
    assert (loaded.em.callbacks, loaded.computation) == ((), Computation())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mapping", ["shared", "per_cluster"])
def test_parts_of_a_kernel_that_are_left_out_stay_out(table: Floats, mapping: str) -> None:
    kernel = RBF(bias=0.0, white=0.0)
    model = SGPMIC(3, mapping=mapping, kernel=kernel).set_params(**QUICK).fit(table)
    assert np.isfinite(model.lower_bound_)
    for found in model.kernels_:
        assert (found.bias, found.white) == (0.0, 0.0)
        assert found.gamma != kernel.gamma
