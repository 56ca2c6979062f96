"""Wheel and sdist, as strangers get them: built, and installed into an environment of its own.

It needs a package index, as `make test` does. The wheel is installed with what it asks for and
nothing else, outside the clone and without it on any path; the sdist is what pip makes the same
wheel from.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sgpmic import __version__

pytestmark = pytest.mark.slow

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


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a user who has never heard of the clone."""
    ours = ("PYTHON", "VIRTUAL_ENV", "XLA_FLAGS", "JAX_")
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return theirs | {"SGPMIC_CACHE_DIR": str(folder / "compiled")}


def run(*words: object, folder: Path) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip(programs: Path, *words: object) -> None:
    """Let this environment's pip work in another one, which then needs none of its own."""
    options = ("--quiet", "--disable-pip-version-check", "--python", programs / "python")
    run(sys.executable, "-m", "pip", *options, *words, folder=programs)


def new_environment(folder: Path) -> Path:
    """Return the folder of a new environment's programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return wheel and sdist. The wheel is made from the sdist, which must be complete for it."""
    folder = tmp_path_factory.mktemp("built")
    programs = new_environment(folder / "tools")
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    pip(programs, "install", "--no-compile", "build", *system["requires"])
    # In this environment: pip makes one of its own below, of what pyproject.toml asks for.
    words = ("-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT)
    run(programs / "python", *words, folder=folder)
    wheels, sources = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return {"wheel": next(wheels), "sdist": next(sources)}


def test_what_the_sdist_holds(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {name.split("/")[0] for name in names}
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "Makefile", "PKG-INFO"} <= top
    tracked = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "docs", "benchmarks", "examples", "paper")
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


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_pip_makes_the_same_wheel_from_the_sdist(built: dict[str, Path], tmp_path: Path) -> None:
    """So what is installed from the one is what is installed from the other."""
    programs = new_environment(tmp_path / "environment")
    pip(programs, "wheel", "--no-deps", "--wheel-dir", tmp_path, built["sdist"])
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == built["wheel"].name
    assert contents(wheel) == contents(built["wheel"])


def needed(wheel: Path) -> set[str]:
    """Return the names of all that a wheel asks for, and that asks for in turn."""
    with zipfile.ZipFile(wheel) as archive:
        (place,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = message_from_bytes(archive.read(place)).get_all("Requires-Dist", [])
    found: set[str] = set()
    left = [*map(Requirement, asked)]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            found.add(name)
            left += map(Requirement, metadata.requires(name) or [])
    return found


def link(names: set[str], programs: Path) -> None:
    """Put packages of this environment, and no others, into another one.

    That they can be had from an index was seen when this environment was made.
    """
    (place,) = programs.parent.glob("lib/python*/site-packages")
    for name in names:
        package = metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (place / top).exists():
                (place / top).symlink_to(Path(str(package.locate_file(top))).resolve())


def test_a_strangers_first_minutes(built: dict[str, Path], tmp_path: Path) -> None:
    programs = new_environment(tmp_path / "environment")
    link(needed(built["wheel"]), programs)
    pip(programs, "install", "--no-compile", "--no-deps", built["wheel"])
    pip(programs, "check")
    said = run(programs / "sgpmic", "demo", "--out", "demo", folder=tmp_path)
    assert "report.html" in said
    assert run(programs / "python", "-c", FIRST_STEPS, folder=tmp_path).strip() == __version__
    run(programs / "sgpmic", "predict", "demo/run", "demo/iris.csv", folder=tmp_path)
    assert sys.prefix not in run(
        programs / "python", "-c", "import sys; print(sys.path)", folder=tmp_path
    )
