"""Parameters of an estimator come back from a file as they went in, and no code with them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from sgpmic import EM, SGPMIC, Committee, Computation, Start
from sgpmic.kernels import RBF, Kernel
from sgpmic.storage.model_file import ModelFileError, write_model
from sgpmic.storage.settings_file import read_settings, write_settings


def test_parameters_come_back(tmp_path: Path) -> None:
    kernel = RBF(variance=0.1, gamma=np.array([0.3, 1 / 3]), ard=True)
    model = SGPMIC(
        np.int64(4),
        kernel=kernel,
        tol=1e-3,
        start=Start(embedding=np.eye(3)[:, :2], n_neighbors=np.int64(7)),
        em=EM(m_steps=3, callbacks=[print]),
        computation=Computation(block_size=64, checkpoint="c", device="cpu"),
    )
    write_settings(tmp_path / "settings.sgpmic", model.get_params(deep=False))
    found = read_settings(tmp_path / "settings.sgpmic")
    expected = model.get_params(deep=False)
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


def test_settings_of_an_earlier_version(tmp_path: Path) -> None:
    """Short fits for the committee and batches are left out, without a warning."""
    values = {
        "Committee": {"strength": 5.0, "own_fits": True, "max_rows": 3000},
        "Computation": {"block_size": 64, "batch_size": 4096, "checkpoint_every": 1},
    }
    parameters = {n.lower(): {"settings": n, "values": v} for n, v in values.items()}
    write_model(tmp_path / "s", {"kind": "settings", "parameters": parameters}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_settings(tmp_path / "s") == {
            "committee": Committee(strength=5.0),
            "computation": Computation(block_size=64),
        }


def test_a_random_state_has_no_seed_to_write(tmp_path: Path) -> None:
    write_settings(tmp_path / "s", {"random_state": np.random.RandomState(0), "tol": 0.5})
    assert read_settings(tmp_path / "s") == {"tol": 0.5}


def test_another_file_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "other", {"kind": "something"}, {})
    with pytest.raises(ModelFileError, match="not a settings file"):
        read_settings(tmp_path / "other")
