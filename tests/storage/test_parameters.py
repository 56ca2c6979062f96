"""Parameters of an estimator come back as they went in, and no code with them."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from sgpmic import EM, SGPMIC, Committee, Computation, Start
from sgpmic.kernels import RBF, Kernel
from sgpmic.storage.models import decode_parameters, encode_parameters


def test_parameters_come_back() -> None:
    kernel = RBF(variance=0.1, gamma=np.array([0.3, 1 / 3]), ard=True)
    model = SGPMIC(
        np.int64(4),
        kernel=kernel,
        tol=1e-3,
        start=Start(embedding=np.eye(3)[:, :2], n_neighbors=np.int64(7)),
        em=EM(m_steps=3, callbacks=[print]),
        computation=Computation(block_size=64, checkpoint="c", device="cpu"),
    )
    expected = model.get_params(deep=False)
    encoded, arrays = encode_parameters(expected)
    found = decode_parameters(json.loads(json.dumps(encoded)), arrays)
    assert set(expected) == set(found)
    assert isinstance(found["kernel"], Kernel)
    for name, value in kernel.parameters().items():
        np.testing.assert_array_equal(found["kernel"].parameters()[name], value)
    np.testing.assert_array_equal(found["start"].embedding, expected["start"].embedding)
    assert found["start"].n_neighbors == 7
    # Neither code, nor a path, nor a device comes from a file.
    assert found["em"] == EM(m_steps=3)
    assert found["computation"] == Computation(block_size=64)
    objects = ("kernel", "start", "em", "computation")
    plain = {name: value for name, value in found.items() if name not in objects}
    assert plain == {name: expected[name] for name in plain}


def test_settings_of_an_earlier_version() -> None:
    """What has no effect any more is left out without a warning, as are former kinds of starts."""
    values = {
        "Committee": {"strength": 5.0, "own_fits": True, "max_rows": 3000},
        "Start": {"embedding": "spectral", "memberships": "fcm", "inducing": "kmeans"},
        "EM": {"m_steps": 3, "settle_mixture": False},
        "Computation": {"block_size": 64, "batch_size": 4096, "checkpoint_every": 1},
    }
    parameters = {n.lower(): {"settings": n, "values": v} for n, v in values.items()}
    with warnings.catch_warnings(action="error"):
        assert decode_parameters(parameters, {}) == {
            "committee": Committee(strength=5.0),
            "start": Start(memberships="fcm"),
            "em": EM(m_steps=3),
            "computation": Computation(block_size=64),
        }


def test_a_random_state_has_no_seed_to_write() -> None:
    parameters = {"random_state": np.random.RandomState(0), "tol": 0.5}
    assert encode_parameters(parameters) == ({"tol": 0.5}, {})


def test_a_parameter_that_no_estimator_has_is_refused() -> None:
    """A name that settings do not store is still an error for an estimator."""
    with pytest.raises(TypeError, match="device"):
        SGPMIC(**decode_parameters({"device": "gpu"}, {}))
