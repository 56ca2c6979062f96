"""The exact values of the reference files: bound, parts, E-step and gradients.

They come from a dense evaluation of the paper's equations with explicit inverses, and complex
steps for the gradients.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from sgpmic.kernels import RBF, Kernel, Linear, cross, stack, unstack
from sgpmic.model import evaluate
from sgpmic.model.bound import Mappings, factorize_all, sums
from sgpmic.model.e_step import e_step, expected_log_likelihoods
from sgpmic.model.mixture import Mixture, factor_mixture, log_densities
from sgpmic.model.rows import Rows, make_rows
from support.bounds import kl_corrected_bound

FILES = sorted((Path(__file__).parents[1] / "data" / "fixtures").glob("*.json"))
TOLERANCE = 1e-9

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)

#: What the files call a parameter, and what we do.
NAMES = {"variance": "theta", "gamma": "gamma", "bias": "bias", "white": "white"}


def close(found: Any, expected: Any) -> None:
    """Compare relative to the largest entry: small ones carry the rounding of the large."""
    expected = np.asarray(expected)
    assert np.shape(found) == expected.shape
    np.testing.assert_allclose(
        found, expected, rtol=TOLERANCE, atol=TOLERANCE * np.abs(expected).max()
    )


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    content = json.loads(path.read_text())
    inputs = content["inputs"]
    assert inputs["white"] == "uu_diag", "the package's model"
    arrays = {
        name: np.asarray(inputs[name], dtype=float)
        for name in ("Y", "X", "Xu", "S", "pi", "xbar", "C")
    }
    return {**inputs, **arrays}, content["expected"]


def kernel_of(given: dict[str, Any]) -> Kernel:
    kind = {"rbf": RBF, "lin": Linear}[given["type"]]
    names = [name for name in NAMES if name in kind().parameters()]
    return kind(**{name: given[NAMES[name]] for name in names})


def evaluate_inputs(inputs: dict[str, Any], S: Any) -> Any:
    kernels = [kernel_of(k) for k in inputs["kernels"]]
    return evaluate(
        inputs["Y"], inputs["X"], inputs["Xu"], kernels, inputs["beta"], S,
        inputs["pi"], inputs["xbar"], inputs["C"], inputs["jitter"], block=5,
    )  # fmt: skip


@every_file
def test_bound_and_its_parts(path: Path) -> None:
    inputs, expected = load(path)
    found = evaluate_inputs(inputs, inputs["S"])
    close(found.bound, expected["L_KL"])
    # Each of the two contains log s, which cancels in their sum.
    close(found.parts["data"], expected["sum_gauss"] + expected["sum_c_normaliser"])
    close(found.parts["latent_prior"], expected["sum_c_latent_prior"])
    close(found.parts["weights"], expected["sum_c_logpi"])
    close(found.parts["entropy"], expected["sum_c_entropy"])


@every_file
def test_e_step_and_the_bound_after_it(path: Path) -> None:
    inputs, expected = load(path)
    found = evaluate_inputs(inputs, inputs["S"])
    close(found.responsibilities, expected["q_S"])
    # The files can tell the variance term of the E-step from its absence.
    without = np.asarray(expected["q_S_without_variance"])
    assert np.abs(found.responsibilities - without).max() > 1e-3
    after = evaluate_inputs(inputs, np.asarray(expected["q_S"]))
    close(after.bound, expected["L_KL_after_estep"])


class Point:
    """The arguments of the bound, positive parameters as logarithms where the files do so."""

    @staticmethod
    def of(inputs: dict[str, Any]) -> dict[str, Any]:
        kernels = stack([kernel_of(k) for k in inputs["kernels"]])
        point = {name: jnp.asarray(inputs[name]) for name in ("X", "Xu", "S", "pi", "xbar", "C")}
        point["log_beta"] = jnp.log(inputs["beta"])
        return {**point, "log_kernels": jax.tree.map(jnp.log, kernels)}

    @staticmethod
    def model(point: dict[str, Any]) -> tuple[Mappings, Mixture]:
        kernels = jax.tree.map(jnp.exp, point["log_kernels"])
        return (
            Mappings(kernels, point["Xu"], jnp.exp(point["log_beta"])),
            Mixture(point["pi"], point["xbar"], point["C"]),
        )


@partial(jax.jit, static_argnames="jitter")
def gradient(point: dict[str, Any], rows: Rows, jitter: float) -> dict[str, Any]:
    def value(point: dict[str, Any]) -> Array:
        mappings, mixture = Point.model(point)
        return kl_corrected_bound(
            mappings, factor_mixture(mixture), point["X"], point["S"], rows,
            shared=False, jitter=jitter,
        ).bound  # fmt: skip

    return jax.grad(value)(point)


@pytest.mark.parametrize("path", FILES[:2], ids=lambda path: path.stem)  # the third has none
def test_gradients(path: Path) -> None:
    inputs, expected = load(path)
    rows = make_rows(inputs["Y"], block=4)  # divides the rows of the files: no padding to cut off
    assert rows.n_padded == len(inputs["Y"])
    found = gradient(Point.of(inputs), rows, inputs["jitter"])
    # C: ours is the derivative by (C + Cᵀ)/2, because the factorization symmetrises its input;
    # that by independent entries is the same at a symmetric C, since the bound has C in it only
    # through log|C| and (x − x̄)ᵀC⁻¹(x − x̄). Symmetrised all the same, to say so in numbers.
    by_C = np.asarray(expected["grad"]["C"])
    close(found["C"], 0.5 * (by_C + by_C.transpose(0, 2, 1)))
    for name in ("X", "Xu", "xbar", "S", "pi", "log_beta"):
        close(found[name], expected["grad"][name])
    for ours, theirs in zip(
        unstack(found["log_kernels"]), expected["grad"]["log_kernels"], strict=True
    ):
        values = ours.parameters()
        close([values[name] for name in values], [theirs[NAMES[name]] for name in values])


@partial(jax.jit, static_argnames="jitter")
def one_e_step(point: dict[str, Any], rows: Rows, jitter: float) -> tuple[Array, ...]:
    mappings, mixture = Point.model(point)
    X, S = point["X"], point["S"]
    prior = factor_mixture(mixture)
    jitters = jnp.full(S.shape[1], jitter)
    new_S, _ = e_step(mappings, prior, X, S, rows, shared=False, jitter=jitters)
    factors = factorize_all(mappings, *sums(mappings, X, S, rows), jitters)
    log_p = log_densities(prior, X) + prior.log_weights
    log_p = log_p + expected_log_likelihoods(mappings, factors, X, rows)

    def moments(component: tuple[Kernel, Array, Array]) -> tuple[Array, Array]:
        kernel, alpha, R_inverse = component
        K = cross(kernel, mappings.Z, X)
        return K.T @ alpha, jnp.sum((R_inverse @ K) ** 2, axis=0)

    means, variances = jax.lax.map(moments, (mappings.kernels, factors.alpha, factors.R_inverse))
    return new_S, log_p, means, variances


@every_file
def test_posterior_of_the_functions(path: Path) -> None:
    inputs, expected = load(path)
    rows = make_rows(inputs["Y"], block=4)
    S, log_p, means, variances = one_e_step(Point.of(inputs), rows, inputs["jitter"])
    close(S, expected["q_S"])
    close(log_p, expected["log_p"])
    close(means[:, :, : inputs["Y"].shape[1]], expected["fbar"])  # without padding
    close(variances, expected["Sigma_diag"])


def test_there_are_reference_files() -> None:
    assert {path.stem[:2] for path in FILES} == {"f1", "f3", "f5"}
