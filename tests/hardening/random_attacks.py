"""Random attacks on the command line: what is damaged, and the command that meets it.

Each attack changes copies of what :func:`prepare` wrote, in a folder, and returns the words of a
command.
"""

from __future__ import annotations

import gzip
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.cli.helpers import command, environment, here, values, write_csv
from tests.hardening.conftest import QUICK

Rng = np.random.Generator


# ------------------------------------------------------------------------------ what is attacked


def prepare(folder: Path) -> Path:
    """Write a table, a finished run and an interrupted one."""
    labels = [("red", "green", "blue")[i // 20] for i in range(60)]
    table = write_csv(folder / "t.csv", values(), color=labels)
    done = here("fit", table, *QUICK, "--out", folder / "run")
    assert done.exit_code == 0, done.output
    half = folder / "half"
    words = ("fit", table, "-k", 3, "--inducing", 10, "--max-iter", 40, "--out", half)
    running = subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while not list(half.glob("checkpoint.sgpmic/iteration-*")) and time.monotonic() < end:
        time.sleep(0.01)
    running.kill()
    running.wait()
    assert list(half.glob("checkpoint.sgpmic/iteration-*")), "no checkpoint was written in time"
    return folder


# ------------------------------------------------------------------------------------- the damage


def damage(data: bytes, rng: Rng) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(changed) + 1))
        length = int(2 ** rng.uniform(0, 10))
        kind = rng.integers(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = rng.bytes(length)
        elif kind == 3:
            changed[at : at + length] = rng.bytes(length)
        elif kind == 4:
            changed[at:at] = changed[at : at + length]
        else:
            del changed[at : at + length]
    return bytes(changed)


def some_file(folder: Path, rng: Rng) -> Path:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return files[int(rng.integers(len(files)))]


CELLS = (
    *("", "NA", "nan", "NaN", "inf", "-inf", "1e308", "-1e308", "1e-320", "0", "-0", "1,5", "1.5"),
    *("=1+1", "@x", "red", "blue", '"', '""', "'", "\\", "\t", "2024-01-31", "31/01/2024", "12:30"),
    *("true", "no", "ä", "字", "\u202e", "\x00", "x" * 500, "9" * 400),
    *("-", "–", " 7 ", "7 %", "€ 9"),
)


def random_text(rng: Rng) -> str:
    """Return a table in which columns may be anything."""
    n_rows, n_columns = int(rng.integers(0, 40)), int(rng.integers(0, 7))
    mark = str(rng.choice([",", ";", "\t", "|"]))
    end = str(rng.choice(["\n", "\r\n", "\r"]))
    kinds = rng.integers(4, size=n_columns)
    lines = []
    if rng.random() < 0.8:
        lines.append(mark.join(str(rng.choice([f"c{j}", "c", "", "a b"])) for j in kinds))
    for i in range(n_rows):
        cells = []
        for kind in kinds:
            cell = repr(float(rng.normal())) if kind == 0 else str(int(rng.integers(5)))
            cell = str(i) if kind == 2 else cell
            cells.append(str(rng.choice(CELLS)) if kind == 3 or rng.random() < 0.02 else cell)
        if rng.random() < 0.01:
            cells = cells[: int(rng.integers(n_columns + 1))]
        lines.append(mark.join(cells))
    return end.join(lines)


# -------------------------------------------------------------------------------------- the cases


def attack_text(box: Path, rng: Rng) -> tuple[object, ...]:
    (box / "new.csv").write_text(random_text(rng), encoding="utf-8", errors="surrogatepass")
    return ("fit", box / "new.csv", *QUICK, "--out", box / "out")


def attack_table_bytes(box: Path, rng: Rng) -> tuple[object, ...]:
    """A table in one of the formats, with damaged bytes."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    rows = values()
    kind = str(rng.choice(["csv", "npy", "npz", "parquet", "feather", "csv.gz"]))
    path = box / f"new.{kind}"
    if kind == "npy":
        np.save(path, rows)
    elif kind == "npz":
        np.savez(path, rows=rows)
    elif kind in ("parquet", "feather"):
        table = pa.table({name: rows[:, j] for j, name in enumerate("abc")})
        write = pa.parquet.write_table if kind == "parquet" else pa.feather.write_feather
        write(table, path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress((box / "t.csv").read_bytes()))
    else:
        path.write_bytes((box / "t.csv").read_bytes())
    path.write_bytes(damage(path.read_bytes(), rng))
    return ("fit", path, *QUICK, "--out", box / "out")


def attack_model(box: Path, rng: Rng) -> tuple[object, ...]:
    model = box / "run" / "model.sgpmic"
    model.write_bytes(damage(model.read_bytes(), rng))
    if rng.random() < 0.5:
        return ("info", model)
    return ("predict", box / "run", box / "t.csv", "--out", box / "out.csv")


def attack_checkpoint(box: Path, rng: Rng) -> tuple[object, ...]:
    path = some_file(box / "half", rng)
    if rng.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes(), rng))
    words = ("-k", 3, "--inducing", 10, "--max-iter", 40, "--out", box / "half", "--resume")
    return ("fit", box / "t.csv", *words)


def attack_folder(box: Path, rng: Rng) -> tuple[object, ...]:
    path = some_file(box / "run", rng)
    kind = rng.integers(4)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.unlink()
        path.mkdir()
    elif kind == 2:
        path.unlink()
        path.symlink_to(path)
    else:
        path.write_bytes(damage(path.read_bytes(), rng))
    words: tuple[tuple[object, ...], ...] = (
        ("report", box / "run", "--table", box / "t.csv"),
        ("info", box / "run"),
        ("predict", box / "run", box / "t.csv", "--out", box / "out.csv"),
        ("fit", box / "t.csv", *QUICK, "--out", box / "run", "--force"),
    )
    return words[int(rng.integers(len(words)))]


OPTIONS = (
    *("-k", "-d", "--out", "--columns", "--drop", "--id", "--label", "--number", "--category"),
    *(
        "--ordered",
        "--date",
        "--log",
        "--scale",
        "--kernel",
        "--latent",
        "--inducing",
        "--max-iter",
    ),
    *("--starts", "--seed", "--device", "--table", "--resume", "--force", "--nothing"),
)
WORDS = (
    *("0", "1", "3", "-1", "1e9", "999999999999", "nan", "auto", "0.5", "", " "),
    *("height", "color", "height,width", "height,height", "no such column"),
    *("each", "one", "rbf", "linear", "cpu", "gpu", "variational"),
    *("--", "-", "..", "/", "/dev/null", "size=a<b", "color=red<green<blue", "字", "%s"),
)


def attack_words(box: Path, rng: Rng) -> tuple[object, ...]:
    """A command with options and values that were not meant for each other."""
    first = str(rng.choice(["fit", "predict", "report", "info", "demo", "nonsense"]))
    words: list[object] = [first]
    if first in ("fit", "info", "report"):
        words.append(box / str(rng.choice(["t.csv", "run", "half", "nowhere", "run/run.json"])))
    elif first == "predict":
        words += [box / "run", box / str(rng.choice(["t.csv", "run", "nowhere"]))]
    out = first in ("fit", "demo", "predict")
    for _ in range(int(rng.integers(0, 4))):
        option = str(rng.choice(OPTIONS))
        words.append(option)
        if option not in ("--resume", "--force", "--nothing"):
            words.append(str(rng.choice(WORDS)))
    if first == "fit":
        words += [*QUICK[2:], *(("-k", 3) if "-k" not in words else ())]
    return (*words, "--out", box / "out") if out else tuple(words)


ATTACKS: dict[str, Callable[[Path, Rng], tuple[object, ...]]] = {
    "text": attack_text,
    "table": attack_table_bytes,
    "model": attack_model,
    "checkpoint": attack_checkpoint,
    "folder": attack_folder,
    "words": attack_words,
}
