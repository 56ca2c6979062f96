"""The results file: what it keeps, and what it survives."""

import json
from pathlib import Path

import pytest

from paper.results import Case, Record, ResultsError, ResultsFile

pytestmark = pytest.mark.slow

CASE = Case("Iris", 2, "AML", 3, 50, (("penalty", 0.1),))


def record(seed: int, case: Case = CASE, **changes: object) -> Record:
    values = {"seconds": 0.5, "scores": {"acc": 90.0 + seed}, "bound": None, "error": None}
    return Record(case, seed, "mark", **(values | changes))  # type: ignore[arg-type]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    runs = [record(0), record(1, bound=-12.25), record(2, error="ValueError: no")]
    with ResultsFile(tmp_path / "runs.jsonl") as file:
        for run in runs:
            file.add(run)
    with ResultsFile(tmp_path / "runs.jsonl") as file:
        assert list(file) == runs
        assert file.has(CASE, 0, "mark")
        assert not file.has(CASE, 0, "other data")
        assert not file.has(CASE, 2, "mark"), "a failed run is tried again"
        assert not file.has(CASE, 3, "mark")


def test_a_line_cut_off_anywhere_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with ResultsFile(path) as file:
        for seed in range(3):
            file.add(record(seed))
    whole = path.read_bytes()
    last = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    for length in range(len(last), len(whole)):
        path.write_bytes(whole[:length])
        with ResultsFile(path) as file:
            assert [r.seed for r in file] == [0, 1]
            file.add(record(2))
        assert path.read_bytes() == whole


def test_order_does_not_depend_on_when_runs_came(tmp_path: Path) -> None:
    other = Case("BC", 1, "DEC", 2, 50)
    runs = [record(1), record(0, other), record(0), record(1, other)]
    contents = []
    for number, order in enumerate((runs, runs[::-1])):
        with ResultsFile(tmp_path / f"{number}.jsonl") as file:
            file.add(record(1, error="the first try of it failed"))
            for run in order:
                file.add(run)
            file.sort()
            file.add(record(9))  # still open for more
        contents.append((tmp_path / f"{number}.jsonl").read_text())
    assert contents[0] == contents[1]
    seeds = [json.loads(line)["seed"] for line in contents[0].splitlines()[1:]]
    assert seeds == [0, 1, 0, 1, 9]
    assert "failed" not in contents[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04 not ours\n", "is not a results file"),
        (b'[1, 2]\n{"a": 1}\n', "is not a results file"),
        (b'{"format": "sgpmic paper results", "version": 1, "sgpmic": "0.0.0"}\n', "0.0.0"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=words):
        ResultsFile(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["{}", '{"seed": 0}', "rubbish", "7", "null"])
def test_a_damaged_line_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "runs.jsonl"
    with ResultsFile(path) as file:
        file.add(record(0))
    with path.open("a") as raw:
        raw.write(damage + "\n")
    with pytest.raises(ResultsError, match="line 3 is damaged"):
        ResultsFile(path)


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with ResultsFile(path) as file:
        with pytest.raises(ResultsError, match="is writing to"):
            ResultsFile(path)
        file.sort()
        with pytest.raises(ResultsError, match="is writing to"):
            ResultsFile(path)
    ResultsFile(path).__exit__(None, None, None)
