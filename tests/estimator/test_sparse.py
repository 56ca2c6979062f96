"""Sparse matrices: reduced by a truncated singular value decomposition, a part of the model."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC
from sgpmic.learning.preprocessing import N_KEPT, dense_rows, fit_reduction, restored_rows
from sgpmic.storage.model_file import ModelFileError, read_model, write_model


def counts(n: int = 90, p: int = 400, seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Return counts of words in texts on three subjects, and the subjects."""
    rng = np.random.default_rng(seed)
    subject = np.arange(n) % 3
    rates = np.full((3, p), 0.02)
    for k in range(3):
        rates[k, 40 * k : 40 * (k + 1)] = 1.0
    return scipy.sparse.csr_array(rng.poisson(rates[subject]).astype(np.float64)), subject


def make() -> SGPMIC:
    return SGPMIC(3, committee=None, max_iter=2, n_inducing=10, random_state=0)


@pytest.fixture(scope="module")
def fitted() -> SGPMIC:
    return make().fit(counts()[0])


def test_the_reduction_is_the_best_of_its_rank() -> None:
    X, _ = counts(n=150)
    reduction = fit_reduction(X, np.random.RandomState(0))
    assert reduction is not None
    Y = dense_rows(X, reduction)
    assert Y.shape == (150, N_KEPT)
    values = np.linalg.svd(X.toarray(), compute_uv=False)
    left = np.linalg.norm(X.toarray() - restored_rows(Y, reduction)) ** 2
    assert left == pytest.approx(np.sum(values[N_KEPT:] ** 2), rel=0.02)  # Eckart and Young
    gram = reduction @ reduction.T
    np.testing.assert_allclose(gram, np.eye(N_KEPT), atol=1e-9)


def test_fewer_rows_than_kept_features_lose_nothing() -> None:
    X, _ = counts(n=60)
    reduction = fit_reduction(X, np.random.RandomState(0))
    assert reduction is not None
    restored = restored_rows(dense_rows(X, reduction), reduction)
    np.testing.assert_allclose(restored, X.toarray(), atol=1e-8)


def test_subjects_are_found(fitted: SGPMIC) -> None:
    _, subject = counts()
    assert fitted.n_features_in_ == 400
    assert adjusted_rand_score(subject, fitted.labels_) > 0.9
    new, of_new = counts(seed=1)
    assert adjusted_rand_score(of_new, fitted.predict(new)) > 0.9
    assert fitted.scaler_.kind == "one"


def test_it_is_a_pipeline_with_a_truncated_decomposition(fitted: SGPMIC) -> None:
    X, _ = counts()
    svd = TruncatedSVD(90, random_state=0)
    beside = make().set_params(scale="one").fit(svd.fit_transform(X))
    assert adjusted_rand_score(beside.labels_, fitted.labels_) == 1.0


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "csr_matrix", "dense"])
def test_all_forms_of_rows_get_the_same_answers(fitted: SGPMIC, form: str) -> None:
    X, _ = counts()
    rows = {
        "csr": X,
        "csc": X.tocsc(),
        "coo": X.tocoo(),
        "csr_matrix": scipy.sparse.csr_matrix(X),
        "dense": X.toarray(),
    }[form]
    np.testing.assert_array_equal(fitted.predict(rows), fitted.labels_)
    # To the last bit: rows that were fitted are known again, also one by one.
    np.testing.assert_array_equal(fitted.transform(rows), fitted.embedding_)
    if form != "coo":
        np.testing.assert_array_equal(fitted.transform(rows[7:9]), fitted.embedding_[7:9])


def test_unsorted_entries_are_the_same_rows(fitted: SGPMIC) -> None:
    X, _ = counts()
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    )
    mixed = scipy.sparse.csr_array((X.data[order], X.indices[order], X.indptr), X.shape)
    before = mixed.indices.copy()
    np.testing.assert_array_equal(fitted.transform(mixed), fitted.embedding_)
    np.testing.assert_array_equal(mixed.indices, before, "the user's matrix is left alone")


def test_rows_come_back_in_all_features(fitted: SGPMIC) -> None:
    X, subject = counts()
    rows = fitted.inverse_transform(fitted.embedding_)
    assert rows.shape == X.shape
    for k in range(3):
        mine = rows[subject == k].mean(axis=0)
        assert set(np.argsort(-mine)[:30]) <= set(range(40 * k, 40 * (k + 1)))
    assert fitted.sample(4)[0].shape == (4, 400)


def test_a_model_file_keeps_it(fitted: SGPMIC, tmp_path: Path) -> None:
    X, _ = counts(seed=2)
    fitted.save(tmp_path / "m.sgpmic")
    loaded = SGPMIC.load(tmp_path / "m.sgpmic")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    header, arrays = read_model(tmp_path / "m.sgpmic")
    reduction = arrays["reduction"]
    for forged, message in (
        (reduction[:, 1:], "n_features_in_ is 400, not 399"),
        (reduction[1:], "reduction has shape"),
        (reduction.astype(np.float32), "reduction has the type float32"),
        (np.where(reduction == reduction.max(), np.nan, reduction), "not finite"),
    ):
        arrays["reduction"] = forged
        write_model(tmp_path / "forged.sgpmic", header, arrays)
        with pytest.raises(ModelFileError, match=message):
            SGPMIC.load(tmp_path / "forged.sgpmic")


def test_few_features_are_made_dense() -> None:
    X = scipy.sparse.csr_array(np.random.default_rng(0).poisson(0.5, (40, 5)).astype(float))
    sparse, dense = make().fit(X), make().fit(X.toarray())
    np.testing.assert_array_equal(sparse.memberships_, dense.memberships_)
    assert sparse.inverse_transform(sparse.embedding_).shape == (40, 5)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dok", "lil", "bsr", "dia"])
@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_every_form_of_scipy_is_taken(form: str, kind: type) -> None:
    """What scikit-learn's checks of sparse rows look at, of a clustering."""
    rng = np.random.RandomState(0)
    dense = rng.uniform(size=(40, 3))
    dense[dense < 0.6] = 0
    X = kind(dense).asformat(form)
    if form == "csr":
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    model = make().fit(X)
    assert model.predict(X).shape == (40,)
    assert model.predict_proba(X).shape == (40, 3)
    np.testing.assert_array_equal(model.labels_, model.predict(dense))


def test_gaps_in_sparse_rows_are_missing_values(fitted: SGPMIC) -> None:
    X = counts()[0][:2].copy()
    X.data[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(X)


def test_a_dense_fit_forgets_an_earlier_sparse_one() -> None:
    model = make().fit(counts()[0])
    Y = np.random.default_rng(0).normal(size=(40, 5))
    assert model.fit(Y).predict(Y).shape == (40,)


def test_profiles_are_of_components(fitted: SGPMIC) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    for given in (None, counts()[0]):
        axes = fitted.plot_profiles(given, n_features=3).ax_
        assert axes.get_yticklabels()[0].get_text().startswith("component ")


def test_components_have_no_name_of_a_column() -> None:
    """A data frame of sparse columns has names, but they are not those of what is drawn."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    columns = [f"word {j}" for j in range(400)]
    table = pandas.DataFrame.sparse.from_spmatrix(counts()[0], columns=columns)
    model = make().fit(table)
    assert model.plot_profiles().feature_names[:2] == ["component 0", "component 1"]
    page = model.plot_interactive(table).page
    assert "component 1" in page
    assert "word 1" not in page


def test_there_is_nothing_to_impute(fitted: SGPMIC) -> None:
    with pytest.raises(ValueError, match="sparse matrix"):
        fitted.impute(np.zeros((2, fitted.n_features_in_)))
