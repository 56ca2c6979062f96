"""What is said in several places about a release is the same in all of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from sgpmic import __version__

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Neither is part of an sdist.
WORKFLOWS = ROOT / ".github" / "workflows"
RECIPE = ROOT / "recipe" / "recipe.yaml"
in_a_clone = pytest.mark.skipif(not WORKFLOWS.exists(), reason="needs a clone")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def lowest(requirements: list[str]) -> dict[str, Version]:
    found = {}
    for requirement in map(Requirement, requirements):
        bounds = [part.version for part in requirement.specifier if part.operator == ">="]
        if requirement.name != PROJECT["name"]:
            found[requirement.name] = Version(bounds[0])
    return found


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    asked = [*PROJECT["dependencies"], *EXTRAS["plot"], *EXTRAS["anndata"], *EXTRAS["test-core"]]
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    tested = {pin.name: Version(str(pin.specifier).removeprefix("==")) for pin in pins}
    assert tested == lowest(asked)


def test_every_python_that_is_promised_is_tested() -> None:
    words = "Programming Language :: Python :: 3."
    promised = [
        line.removeprefix(words[:-2]) for line in PROJECT["classifiers"] if line.startswith(words)
    ]
    assert PROJECT["requires-python"] == f">={promised[0]}"
    loop = re.search(r"for version in ([\d. ]+); do", (ROOT / "Makefile").read_text())
    assert loop is not None
    assert loop[1].split() == promised
    if WORKFLOWS.exists():
        matrix = read(WORKFLOWS / "tests.yml")["jobs"]["pythons"]["strategy"]["matrix"]
        assert matrix["python"] == promised


def test_the_version_is_the_same_everywhere() -> None:
    assert str(Version(__version__)) == __version__
    assert read(ROOT / "CITATION.cff")["version"] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)}\b", changelog, flags=re.M)
    if RECIPE.exists():
        assert read(RECIPE)["context"]["version"] == __version__


def test_the_citation_names_the_paper() -> None:
    (paper,) = read(ROOT / "CITATION.cff")["references"]
    assert paper["title"] == "Clustering based on Mixtures of Sparse Gaussian Processes"
    assert [author["family-names"] for author in paper["authors"]] == [
        *("Moslehi", "Mirzaei", "Safayani"),
    ]


@in_a_clone
def test_conda_asks_for_what_pip_asks_for() -> None:
    run = read(RECIPE)["requirements"]["run"]
    # conda writes a space between the name and the versions.
    asked = {str(Requirement(line)) for line in run if not line.startswith("python ")}
    # There the name without "python" is the compiler of the format.
    asked = {line.replace("python-flatbuffers", "flatbuffers") for line in asked}
    assert asked == {str(Requirement(line)) for line in PROJECT["dependencies"]}


@in_a_clone
def test_workflows_use_pinned_actions_and_few_rights() -> None:
    paths = sorted(WORKFLOWS.glob("*.yml"))
    assert [path.stem for path in paths] == ["docs", "release", "tests"]
    for path in paths:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            uses = [job["uses"]] if "uses" in job else []
            uses += [step["uses"] for step in job.get("steps", []) if "uses" in step]
            for action in uses:
                pinned = re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)
                assert pinned or action.startswith("./"), (path.name, name, action)


@in_a_clone
def test_only_tags_are_published_and_only_after_the_tests() -> None:
    release = read(WORKFLOWS / "release.yml")
    # YAML 1.1 reads the key `on` as true.
    assert release[True] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert publish["needs"] == ["test", "build"]
    assert publish["permissions"] == {"id-token": "write"}


@in_a_clone
def test_make_has_what_workflows_and_pages_call() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WORKFLOWS.glob("*.yml")]
    for page in pages:
        called = re.findall(r"(?:^\$ |run: )make ([a-z-]+)", page.read_text(), flags=re.M)
        assert set(called) <= targets, page.name


@pytest.mark.slow
def test_the_estimator_runs_without_what_only_tables_and_commands_need() -> None:
    """docs/howto/install.md says so, for small containers."""
    code = """
import sys
for name in ("pyarrow", "typer", "rich", "jinja2", "matplotlib", "pandas"):
    sys.modules[name] = None
import numpy as np
import sgpmic
rows = np.random.default_rng(0).normal(size=(40, 4)) + np.repeat([0.0, 9.0], 20)[:, None]
model = sgpmic.SGPMIC(2, committee=None, max_iter=2, random_state=0).fit(rows)
model.save("model.sgpmic")
assert (sgpmic.SGPMIC.load("model.sgpmic").predict(rows) == model.labels_).all()
try:
    sgpmic.TableEncoder
except ModuleNotFoundError as error:
    print(error.name)
"""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    assert done.stdout == "pyarrow\n", done.stderr
