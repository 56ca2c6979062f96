"""What the estimator promises: attributes, new rows, determinism, files, callbacks."""

import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC, Progress, Start
from sgpmic.kernels import KERNELS, RBF, Linear
from sgpmic.model import evaluate

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]
TRUTH = np.repeat([0, 1, 2], 20)


# A mapping for each cluster has the same derivatives, which tests/model holds for every kernel.
@pytest.mark.parametrize(
    ("mapping", "kernel"),
    [
        ("shared", "rbf"),
        ("per_cluster", "rbf"),
        *(
            pytest.param("shared", name, marks=pytest.mark.slow)
            for name in sorted(KERNELS)
            if name != "rbf"
        ),
    ],
)
def test_blobs_are_found(table: Floats, quick_fit: Fit, mapping: str, kernel: str) -> None:
    model = quick_fit(table, mapping=mapping, kernel=kernel)
    assert adjusted_rand_score(TRUTH, model.labels_) == 1.0
    assert len(model.kernels_) == (1 if mapping == "shared" else 3)


# L-BFGS with the other two is in tests/model/test_em.py, against a dense evaluation.
@pytest.mark.parametrize(
    ("optimizer", "covariance_type"),
    [
        *(("scg", kind) for kind in ("unit", "spherical", "diag", "tied", "full")),
        ("lbfgs", "diag"),
    ],
)
def test_covariances_have_their_shape(
    table: Floats, quick_fit: Fit, optimizer: str, covariance_type: str
) -> None:
    model = quick_fit(table, covariance_type=covariance_type, em__optimizer=optimizer)
    C = model.covariances_
    assert adjusted_rand_score(TRUTH, model.labels_) == 1.0
    off_diagonal = C[:, ~np.eye(2, dtype=bool)]
    if covariance_type in ("unit", "spherical", "diag"):
        np.testing.assert_array_equal(off_diagonal, 0.0)
    if covariance_type == "unit":
        np.testing.assert_array_equal(C, np.broadcast_to(np.eye(2), C.shape))
    if covariance_type == "spherical":
        np.testing.assert_array_equal(C[:, 0, 0], C[:, 1, 1])
    if covariance_type == "tied":
        np.testing.assert_array_equal(C[0], C[1])
    if covariance_type == "full":
        assert np.abs(off_diagonal).min() > 0
    if covariance_type != "unit":  # the scale of the latent space is fixed
        np.testing.assert_allclose(model.embedding_.mean(axis=0), 0.0, atol=1e-10)
        np.testing.assert_allclose(model.embedding_.var(axis=0).mean(), 1.0)


def test_reported_bound_is_the_bound_of_the_reported_model(table: Floats, quick_fit: Fit) -> None:
    # In the units of the data, and from nothing but public attributes.
    model = quick_fit(table, mapping="per_cluster", em__prior_strength=0.0)
    value = evaluate(
        (table - model.scaler_.offset) / model.scaler_.scale,
        model.embedding_,
        model.inducing_,
        model.kernels_,
        model.beta_,
        model.memberships_,
        model.weights_,
        model.means_,
        model.covariances_,
        jitter=model.em.jitter,
    ).bound
    value += len(table) * model.scaler_.log_volume
    # memberships_ come from one more E-step, which can only raise the bound.
    assert value >= model.lower_bound_ - 1e-8 * abs(model.lower_bound_)
    assert value == pytest.approx(model.lower_bound_, abs=1.0)


@pytest.mark.parametrize("mapping", ["shared", "per_cluster"])
def test_the_bound_never_falls(table: Floats, quick_fit: Fit, mapping: str) -> None:
    history = quick_fit(table, mapping=mapping, max_iter=8, tol=0.0).history_
    path = np.array([history["bound_after_e"], history["bound"]]).T.ravel()
    assert len(path) == 16
    assert np.diff(path).min() >= -1e-9 * np.abs(path).max()


def test_cluster_0_is_the_largest(quick_fit: Fit, table: Floats) -> None:
    model = quick_fit(np.concatenate([table[:10], table[20:50], table[40:60]]))
    sizes = np.bincount(model.labels_)
    assert (np.diff(sizes) <= 0).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_cluster_0_is_the_largest_if_rows_repeat(seed: int) -> None:
    """Duplicate rows share their memberships, which may change their labels at the end."""
    rows = np.random.default_rng(seed).integers(0, 3, size=(150, 3)).astype(float)
    points = np.random.default_rng(seed).normal(size=(150, 2))
    start = Start(embedding=points, n_retries=0)
    model = SGPMIC(4, committee=None, start=start, random_state=seed)
    with warnings.catch_warnings(action="ignore"):
        model.fit(rows)
    assert (np.diff(np.bincount(model.labels_, minlength=4)) <= 0).all()


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, True),
        ({"committee": None}, False),
        ({"start": Start(n_init=3)}, True),
    ],
)
def test_the_seed_matters_without_a_committee_only(
    table: Floats, options: dict[str, Any], same: bool
) -> None:
    models = [SGPMIC(3, random_state=seed, max_iter=3, **options) for seed in (0, 1)]
    with warnings.catch_warnings(action="ignore"):
        one, other = (model.fit(table).embedding_ for model in models)
    assert np.array_equal(one, other) == same


def test_training_rows_keep_their_place(fitted: SGPMIC, table: Floats) -> None:
    np.testing.assert_array_equal(fitted.transform(table), fitted.embedding_)
    np.testing.assert_array_equal(fitted.predict_proba(table), fitted.memberships_)
    np.testing.assert_array_equal(fitted.predict(table[::-1]), fitted.labels_[::-1])


def test_training_rows_are_recognized_by_models_of_earlier_files(
    table: Floats, quick_fit: Fit
) -> None:
    """Their fingerprints were BLAKE2 digests of every row's bytes."""
    model = quick_fit(table)
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in table]
    keys = np.frombuffer(b"".join(digests), dtype=np.uint64)
    order = np.argsort(keys)
    reference = model._predictor.reference
    assert not np.isin(keys, reference.keys).any()
    model._predictor.reference = replace(reference, keys=keys[order], order=order)
    np.testing.assert_array_equal(model.transform(table), model.embedding_)


@pytest.mark.parametrize("mapping", ["shared", pytest.param("per_cluster", marks=pytest.mark.slow)])
def test_an_answer_does_not_depend_on_the_batch(
    table: Floats, quick_fit: Fit, mapping: str
) -> None:
    """One by one, in another order, in batches of other sizes, with and without gaps beside it."""
    model = quick_fit(table, mapping=mapping)
    rng = np.random.default_rng(1)
    new = rng.normal(table.mean(axis=0), 3.0, size=(600, 4))
    new[::5, 1] = np.nan
    order = rng.permutation(len(new))
    for method in (model.transform, model.predict_proba, model.score_samples):
        together = method(new)
        np.testing.assert_array_equal(method(new[order]), together[order])
        for batch in (slice(0, 1), slice(5, 6), slice(1, 5), slice(40, 77), slice(80, 595)):
            np.testing.assert_array_equal(method(new[batch]), together[batch])
        np.testing.assert_array_equal(method(np.concatenate([table, new[-3:]]))[-3:], together[-3:])


def test_new_rows_lie_where_they_are_most_likely(fitted: SGPMIC, table: Floats) -> None:
    """No point of a grid around it has a higher density, for rows near and between clusters."""
    from sgpmic._runtime import numerics
    from sgpmic.model.mixture import factor_mixture
    from sgpmic.model.prediction import log_joints

    predictor = fitted._predictor
    posterior = predictor.posterior

    @jax.jit
    def of_points(points: Any, row: Any) -> Any:
        joints = log_joints(posterior, factor_mixture(posterior.mixture), points, row)
        return jax.nn.logsumexp(joints, axis=1)

    new = np.concatenate([table[::6] + 0.3, (table[:10] + table[20:30]) / 2.0])
    side = np.linspace(-0.5, 0.5, 101)  # with 0, the point itself
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for y, x in zip(new, fitted.transform(new), strict=True):
        row = np.broadcast_to(predictor.scaler.transform(y), (len(grid), 4))
        with numerics():
            found = np.asarray(of_points(x + grid, row))
        assert found[len(grid) // 2] >= found.max() - 1e-9


def test_new_rows_near_a_cluster_join_it(fitted: SGPMIC, table: Floats) -> None:
    means = np.array([table[i * 20 : (i + 1) * 20].mean(axis=0) for i in range(3)])
    np.testing.assert_array_equal(fitted.predict(means), fitted.labels_[[0, 20, 40]])


def test_inverse_transform_comes_back(fitted: SGPMIC, table: Floats) -> None:
    error = fitted.inverse_transform(fitted.embedding_) - table
    assert (error**2).mean() < 0.5 * table.var(axis=0).mean()


@pytest.mark.slow
def test_density_of_one_gaussian_is_honest() -> None:
    # One cluster, a linear kernel and one latent dimension: probabilistic PCA with a point
    # estimate of the latent rows. No density beats the true one on new rows (Gibbs' inequality);
    # an estimate from 300 rows must come close to it.
    rng = np.random.default_rng(0)
    direction = np.array([3.0, 2.0, 1.0])
    Y = rng.normal(size=(300, 1)) * direction + 0.5 * rng.normal(size=(300, 3))
    truth = multivariate_normal(np.zeros(3), np.outer(direction, direction) + 0.25 * np.eye(3))
    with warnings.catch_warnings(action="ignore"):
        model = SGPMIC(1, 1, kernel="linear", n_inducing=5, start=Start("pca"), random_state=0)
        model.fit(Y)
    new = truth.rvs(2000, random_state=1)
    gap = truth.logpdf(new).mean() - model.score(new)
    assert -0.05 < gap < 0.5


def test_density_is_the_integral_over_latent_points(fitted: SGPMIC, table: Floats) -> None:
    # Laplace's approximation against brute force: p(y) = ∫ p(y, x) dx on a fine grid.
    from sgpmic._runtime import numerics
    from sgpmic.learning.prediction.projection import laplace
    from sgpmic.model.mixture import factor_mixture
    from sgpmic.model.prediction import log_joints

    predictor = fitted._predictor
    posterior, units = predictor.posterior, predictor.scaler

    @jax.jit
    def of_grid(posterior: Any, grid: Any, row: Any) -> Any:
        return log_joints(posterior, factor_mixture(posterior.mixture), grid, row)

    side = np.linspace(-4.0, 4.0, 400)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for y in table[[3, 25, 47]] + 0.05:
        row = np.broadcast_to(units.transform(y), (len(grid), 4))
        with numerics():
            joint = of_grid(posterior, grid, row)
        integral = np.log(np.exp(np.asarray(joint)).sum() * (side[1] - side[0]) ** 2)
        with numerics():
            found = laplace(posterior, predictor._project(y[None])[0])
        assert found[0] == pytest.approx(integral, abs=0.5)


def test_strange_rows_have_low_density(fitted: SGPMIC, table: Floats) -> None:
    assert fitted.score_samples(table + 40.0).max() < fitted.score_samples(table).min()


def test_samples_look_like_the_data(fitted: SGPMIC, table: Floats) -> None:
    rows, labels = fitted.sample(2000)
    assert rows.shape == (2000, 4)
    assert (np.diff(labels) >= 0).all()
    np.testing.assert_allclose(np.bincount(labels) / 2000, fitted.weights_, atol=0.05)
    for m in range(3):
        mine = table[fitted.labels_ == m]
        np.testing.assert_allclose(rows[labels == m].mean(axis=0), mine.mean(axis=0), atol=1.0)


def test_same_seed_same_bits(table: Floats, quick_fit: Fit) -> None:
    one, two = quick_fit(table), quick_fit(table)
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    np.testing.assert_array_equal(one.memberships_, two.memberships_)
    assert one.lower_bound_ == two.lower_bound_


@pytest.mark.slow
def test_same_bits_in_two_processes(table: Floats, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", table)
    code = (
        "import numpy as np, sys, warnings; warnings.simplefilter('ignore')\n"
        "from sgpmic import SGPMIC\n"
        f"model = SGPMIC(3).set_params(**{QUICK!r}).fit(np.load('table.npy'))\n"
        "np.save(sys.argv[1], model.embedding_)\n"
    )
    # Each compiles for itself, so that this is about two compilations too, not one and its copy.
    alone = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    for name in ("one", "two"):
        subprocess.run(
            [sys.executable, "-c", code, name], check=True, timeout=300, env=alone, cwd=tmp_path
        )
    one, two = (np.load(tmp_path / f"{name}.npy") for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)


def test_blocks_do_not_change_the_result(table: Floats, quick_fit: Fit, fitted: SGPMIC) -> None:
    blocked = quick_fit(table, computation__block_size=13)
    np.testing.assert_array_equal(blocked.labels_, fitted.labels_)
    assert blocked.lower_bound_ == pytest.approx(fitted.lower_bound_, rel=1e-6)


@pytest.mark.parametrize(
    ("mapping", "kernel"),
    [
        ("shared", RBF(gamma=0.5, ard=True)),
        pytest.param("shared", Linear(ard=True), marks=pytest.mark.slow),
        pytest.param("per_cluster", "rbf", marks=pytest.mark.slow),
    ],
)
def test_saved_and_loaded_predicts_the_same(
    table: Floats, quick_fit: Fit, tmp_path: Path, mapping: str, kernel: Any
) -> None:
    frame = pd.DataFrame(table, columns=list("abcd"))
    model = quick_fit(frame, mapping=mapping, kernel=kernel, start__n_init=2)
    model.save(tmp_path / "model.sgpmic")
    loaded = SGPMIC.load(tmp_path / "model.sgpmic")
    for method in ("predict", "predict_proba", "transform", "score_samples"):
        for rows in (frame, frame + 0.3):
            np.testing.assert_array_equal(
                getattr(loaded, method)(rows), getattr(model, method)(rows)
            )
    np.testing.assert_array_equal(loaded.sample(5)[0], model.sample(5)[0])
    assert loaded.get_params() == model.get_params()
    assert loaded.lower_bound_ == model.lower_bound_
    assert loaded.history_ == model.history_
    assert [s["bound"] for s in loaded.starts_] == [s["bound"] for s in model.starts_]
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    assert loaded.kernels_ == model.kernels_


def test_a_model_file_of_something_else(tmp_path: Path) -> None:
    from sgpmic.storage.model_file import ModelFileError, write_model

    write_model(tmp_path / "other", {"estimator": "Other"}, {"a": np.zeros(3)})
    with pytest.raises(ModelFileError, match="fit and save the model again"):
        SGPMIC.load(tmp_path / "other")


def test_feature_names_and_output_frames(table: Floats, quick_fit: Fit) -> None:
    frame = pd.DataFrame(table, columns=list("abcd"))
    model = quick_fit(frame)
    assert list(model.feature_names_in_) == list("abcd")
    assert list(model.get_feature_names_out()) == ["sgpmic0", "sgpmic1"]
    out = model.set_output(transform="pandas").transform(frame)
    assert list(out.columns) == ["sgpmic0", "sgpmic1"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_polars_in_and_out(table: Floats, quick_fit: Fit, fitted: SGPMIC) -> None:
    frame = pl.DataFrame(table, schema=list("abcd"))
    model = quick_fit(frame)
    np.testing.assert_array_equal(model.labels_, fitted.labels_)
    assert list(model.feature_names_in_) == list("abcd")
    assert isinstance(model.set_output(transform="polars").transform(frame), pl.DataFrame)


def test_in_a_pipeline_and_cloned(table: Floats) -> None:
    pipeline = make_pipeline(StandardScaler(), SGPMIC(3).set_params(**QUICK))
    with warnings.catch_warnings(action="ignore"):
        labels = pipeline.fit_predict(table)
    assert adjusted_rand_score(TRUTH, labels) == 1.0
    kernel = RBF(gamma=[1.0, 2.0])
    assert clone(SGPMIC(kernel=kernel)).kernel == kernel


@pytest.mark.parametrize("error", [SystemExit, ValueError])
def test_a_failed_fit_changes_nothing(
    error: type[BaseException], table: Floats, quick_fit: Fit
) -> None:
    model = quick_fit(pd.DataFrame(table, columns=list("abcd")))
    model.encoder_ = FunctionTransformer()  # as a model that was read from a file has one
    before, new = dict(vars(model)), pd.DataFrame(table + 0.1, columns=list("abcd"))
    labels = model.predict(new)

    def fail(progress: Progress) -> None:
        raise error

    model.set_params(em__callbacks=[fail])
    with pytest.raises(error):
        model.fit(np.hstack([table, table]))
    model.set_params(em=before["em"])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(new), labels)


def test_the_former_name_of_the_scaler(fitted: SGPMIC) -> None:
    with pytest.warns(FutureWarning, match="scaler_"):
        assert fitted.units_ is fitted.scaler_
    assert not hasattr(fitted, "no_such_name_")
    with warnings.catch_warnings(action="error"):
        assert "units_" not in dir(fitted)


def test_the_former_names_of_iterations(
    table: Floats, quick_fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    model = quick_fit(table, em__callbacks=[seen.append], max_iter=2, tol=0.0)
    with pytest.warns(FutureWarning, match=r"history_\['iteration'\]"):
        assert model.history_["round"] == model.history_["iteration"] == [1, 2]
    with pytest.warns(FutureWarning, match="iteration"):
        assert [getattr(p, "round") for p in seen] == [1, 2]  # noqa: B009
    with pytest.warns(FutureWarning, match="max_iter"):
        assert getattr(seen[0], "max_rounds") == 2  # noqa: B009
    assert not hasattr(seen[0], "no_such_name")
    with pytest.raises(KeyError, match="no such name"):
        model.history_["no such name"]
    # A model file of an earlier version has them too.
    names = {"iteration": "round"}
    old = {names.get(name, name): values for name, values in model.history_.items()}
    monkeypatch.setattr(model, "history_", old)
    model.save(tmp_path / "old.sgpmic")
    assert SGPMIC.load(tmp_path / "old.sgpmic").history_["iteration"] == [1, 2]


def test_units_change_nothing(table: Floats, quick_fit: Fit, fitted: SGPMIC) -> None:
    # Powers of two, which float64 multiplies exactly.
    for factor in (2.0**20, 2.0**-20):
        other = quick_fit(table * factor)
        np.testing.assert_array_equal(other.embedding_, fitted.embedding_)
        shift = table.size * np.log(factor)
        assert other.lower_bound_ == pytest.approx(fitted.lower_bound_ - shift, rel=1e-9)
        assert other.beta_ == fitted.beta_
        np.testing.assert_array_equal(other.scaler_.scale, fitted.scaler_.scale * factor)


def test_memory_layout_changes_nothing(table: Floats, quick_fit: Fit, fitted: SGPMIC) -> None:
    for same in (
        np.asfortranarray(table),
        pd.DataFrame(table),
        np.repeat(table, 2, axis=1)[:, ::2],
    ):
        np.testing.assert_array_equal(quick_fit(same).embedding_, fitted.embedding_)


def test_a_users_changes_do_not_reach_the_model(table: Floats, quick_fit: Fit) -> None:
    model = quick_fit(table)
    expected = model.embedding_.copy()
    model.embedding_ += 100.0
    model.memberships_[:] = 0.0
    np.testing.assert_array_equal(model.transform(table), expected)
    np.testing.assert_allclose(model.predict_proba(table).sum(axis=1), 1.0)


def test_several_starts_are_listed(table: Floats, quick_fit: Fit) -> None:
    model = quick_fit(table, start__n_init=4)
    kinds = {(s["embedding"], s["memberships"]) for s in model.starts_}
    assert len(kinds) == 4
    assert sum(s["kept"] for s in model.starts_) == 1
    kept = next(s for s in model.starts_ if s["kept"])
    assert kept["agreement"] == max(s["agreement"] for s in model.starts_)
    assert kept["bound"] == model.lower_bound_
    assert adjusted_rand_score(kept["labels"], model.labels_) == 1.0


def test_callbacks_are_told_and_can_stop(table: Floats, quick_fit: Fit) -> None:
    seen: list[Progress] = []

    def stop_at_two(progress: Progress) -> bool:
        seen.append(progress)
        return progress.iteration == 2

    # NumPy's truth values count as well.
    quick_fit(table, em__callbacks=[lambda p: np.bool_(p.iteration == 1), seen.append], tol=0.0)
    assert [p.iteration for p in seen] == [1]
    seen.clear()
    model = quick_fit(table, em__callbacks=[stop_at_two], tol=0.0)
    assert [p.iteration for p in seen] == [1, 2]
    assert model.n_iter_ == 2
    assert seen[-1].bound == model.lower_bound_
    assert seen[-1].cluster_sizes.sum() == pytest.approx(60.0)


def test_verbose_prints_a_line_per_iteration(
    table: Floats, quick_fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    quick_fit(table, verbose=1, tol=0.0)
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 3
    assert "iteration 3/3" in lines[-1]


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_every_start_runs(table: Floats, quick_fit: Fit, method: str) -> None:
    model = quick_fit(table, start__embedding=method, start__memberships="fcm")
    assert np.isfinite(model.lower_bound_)
    given: dict[str, Any] = {
        "start__embedding": model.embedding_,
        "start__memberships": model.memberships_,
    }
    assert quick_fit(table, **given).starts_[0]["embedding"] == "given"


def test_assess_is_the_four_methods_at_once() -> None:
    rng = np.random.RandomState(0)
    Y = np.vstack([rng.standard_normal((20, 3)) + 5.0 * k for k in range(3)])
    model = SGPMIC(3, committee=None, n_inducing=10, max_iter=2, random_state=0).fit(Y)
    rows = np.vstack([Y[:5], Y[7:9] + 0.3, Y[3:4]])  # seen and new ones mixed
    found = model.assess(rows)
    np.testing.assert_array_equal(found.labels, model.predict(rows))
    np.testing.assert_array_equal(found.memberships, model.predict_proba(rows))
    np.testing.assert_array_equal(found.embedding, model.transform(rows))
    np.testing.assert_array_equal(found.log_density, model.score_samples(rows))
