"""Wheel and sdist, as strangers get them: built, and installed into environments of their own.

It needs a package index, as `make test` does. Each file is installed with everything it asks for,
outside the clone and without it on any path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from sgpmic import __version__

ROOT = Path(__file__).parents[2]

#: What a user's first minutes use, and what a wheel loses most easily: data beside the code.
FIRST_STEPS = """
import pathlib, sys
import sgpmic

home = pathlib.Path(sgpmic.__file__).parent
assert home.is_relative_to(sys.prefix), home
assert (home / "py.typed").exists()
assert list((home / "report" / "templates").iterdir())
model = sgpmic.SGPMIC.load("demo/run/model.sgpmic")
assert model.labels_.shape == (150,)
print(sgpmic.__version__)
"""


def environment() -> dict[str, str]:
    """Return the variables of a user who has never heard of the clone."""
    ours = ("PYTHON", "VIRTUAL_ENV", "XLA_FLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(*words: object, folder: Path) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def new_environment(folder: Path) -> Path:
    """Return the folder of a new environment's programs."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin"


def install(programs: Path, *what: object) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(programs / "python", "-m", "pip", "install", *options, *what, folder=programs)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return wheel and sdist. The wheel is made from the sdist, which must be complete for it."""
    folder = tmp_path_factory.mktemp("built")
    programs = new_environment(folder / "tools")
    install(programs, "build")
    run(programs / "python", "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
    wheels, sources = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return {"wheel": next(wheels), "sdist": next(sources)}


def test_what_the_sdist_holds(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {name.split("/")[0] for name in names}
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "Makefile", "PKG-INFO"} <= top
    tracked = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "docs", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert tracked <= names
    others = {"README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "CODE_OF_CONDUCT.md"}
    others |= {"CONTRIBUTING.md", "SECURITY.md", "Makefile", "mkdocs.yml", "pyproject.toml"}
    assert names - tracked == others | {"PKG-INFO", ".gitignore"}
    assert built["sdist"].stat().st_size < 4e6


def test_what_the_wheel_holds(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"sgpmic", f"sgpmic-{__version__}.dist-info"}
    source = ROOT / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("sgpmic/")} == ours
    assert "sgpmic/py.typed" in names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_strangers_first_minutes(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    programs = new_environment(tmp_path / "environment")
    install(programs, built[kind])
    run(programs / "python", "-m", "pip", "check", folder=tmp_path)
    said = run(programs / "sgpmic", "demo", "--out", "demo", folder=tmp_path)
    assert "report.html" in said
    assert run(programs / "python", "-c", FIRST_STEPS, folder=tmp_path).strip() == __version__
    run(programs / "sgpmic", "predict", "demo/run", "demo/iris.csv", folder=tmp_path)
    assert sys.prefix not in run(
        programs / "python", "-c", "import sys; print(sys.path)", folder=tmp_path
    )
