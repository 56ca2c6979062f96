"""Attack the command line at random: tables, model files, checkpoints, run folders, words.

    python -m tests.hardening.fuzz --minutes 60 --processes 2 --seed 0

Every case is made from a kind and a number, so that it can be made again:
``--only checkpoint:17``. A command must end within a minute with results or with one sentence; it
shows no traceback, writes no NaN and nothing outside its folder, and takes no more than 2 GB.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from tests.cli.helpers import command, environment, here, values, write_csv

QUICK = ("-k", 3, "--rounds", 2, "--inducing", 10)
LONGEST, MOST_BYTES = 60, 2_000_000_000
#: Seconds after an alarm that was not heard.
DEAF = 30
#: What an attacking process leaves in its folder: notes, where it hung, and how much it took.
NOTES, SHOWN, MEMORY = "notes.jsonl", "shown.txt", "memory.txt"
#: Done, refused, interrupted with a checkpoint.
ENDINGS = {0, 2, 75}

Rng = np.random.Generator


class Found(AssertionError):
    """What a command must not do."""


# ------------------------------------------------------------------------------ what is attacked


def prepare(folder: Path) -> Path:
    """Write a table, a finished run and an interrupted one."""
    labels = [("red", "green", "blue")[i // 20] for i in range(60)]
    table = write_csv(folder / "t.csv", values(), colour=labels)
    done = here("fit", table, *QUICK, "--out", folder / "run")
    assert done.exit_code == 0, done.output
    half = folder / "half"
    words = ("fit", table, "-k", 3, "--inducing", 10, "--rounds", 40, "--out", half)
    running = subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while not list(half.glob("checkpoint.sgpmic/round-*")) and time.monotonic() < end:
        time.sleep(0.01)
    running.kill()
    running.wait()
    assert list(half.glob("checkpoint.sgpmic/round-*")), "no checkpoint was written in time"
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
    *(
        "true",
        "no",
        "ä",
        "字",
        "\u202e",
        "\x00",
        "x" * 500,
        "9" * 400,
        "-",
        "–",
        " 7 ",
        "7 %",
        "€ 9",
    ),
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
        import gzip

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
    words = ("-k", 3, "--inducing", 10, "--rounds", 40, "--out", box / "half", "--resume")
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
    *("--ordered", "--date", "--log", "--scale", "--kernel", "--latent", "--inducing", "--rounds"),
    *("--starts", "--seed", "--batch", "--device", "--table", "--resume", "--force", "--nothing"),
)
WORDS = (
    *(
        "0",
        "1",
        "3",
        "-1",
        "1e9",
        "999999999999",
        "nan",
        "auto",
        "0.5",
        "",
        " ",
        "height",
        "colour",
    ),
    *(
        "height,width",
        "height,height",
        "no such column",
        "each",
        "one",
        "rbf",
        "linear",
        "cpu",
        "gpu",
    ),
    *(
        "variational",
        "--",
        "-",
        "..",
        "/",
        "/dev/null",
        "size=a<b",
        "colour=red<green<blue",
        "字",
        "%s",
    ),
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


# -------------------------------------------------------------------------------------- the judge


class TooLong(BaseException):
    """An alarm, which nobody takes for an error of a command and handles."""


@contextmanager
def at_most(seconds: int, shown: TextIO | None = None) -> Iterator[None]:
    """Raise :class:`Found` after so many seconds; show where it hangs and end if that is not heard.

    What hangs outside Python hears no alarm.
    """

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(seconds + DEAF, exit=True, file=shown or sys.stderr)
    try:
        yield
    except TooLong as alarm:
        where = "".join(traceback.format_tb(alarm.__traceback__)[-4:])
        raise Found(f"it took more than {seconds} s\n{where}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(box: Path) -> set[str]:
    """Return what lies where a command has nothing to write."""
    ours = ("out", "run", "half")
    beside = {str(path) for path in box.iterdir() if path.name.split(".")[0] not in ours}
    return beside | {str(path) for path in box.parent.iterdir()}


def judge(base: Path, kind: str, number: int, shown: TextIO | None = None) -> int:
    """Make a case from copies, run its command and return how it ended, or raise :class:`Found`."""
    rng = np.random.default_rng([sorted(ATTACKS).index(kind), number])
    with tempfile.TemporaryDirectory(dir=base) as place:
        box = Path(place) / "box"
        shutil.copytree(base / "origin", box)
        words = ATTACKS[kind](box, rng)
        known = outside(box)
        with at_most(LONGEST, shown):
            done = here(*words)
        said = done.output
        about = f"{' '.join(map(str, words))}\n{said[-1500:]}"
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise Found(f"{done.exception!r}\n{about}") from done.exception
        if done.exit_code not in ENDINGS:
            raise Found(f"ended with {done.exit_code}\n{about}")
        if "Traceback" in said:
            raise Found(about)
        new = outside(box) - known
        if new:
            raise Found(f"it wrote {sorted(new)}\n{about}")
        for path in (box / "out.csv", box / "out" / "labels.csv"):
            if done.exit_code == 0 and path.is_file() and ",nan" in path.read_text().lower():
                raise Found(f"NaN in {path.name}\n{about}")
        return int(done.exit_code)


# -------------------------------------------------------------------------------------- the hours


class Attacker:
    """A process that attacks until a time, and writes down what it does.

    Nobody waits for an answer of it: one that dies, or hangs where even its own alarm is not
    heard, is noticed by its notes, and another one takes its place.

    Parameters
    ----------
    folder : Path
        With a folder ``origin``, of which every case has a copy.
    first : int
        Number of the first case.
    end : float
        When to end, as ``time.time`` counts.
    attack : callable
        What the process does; called with the folder, the first number and the end.
    patience : float
        Seconds that a case may take.
    """

    def __init__(
        self,
        folder: Path,
        first: int,
        end: float,
        attack: Callable[[Path, int, float], None],
        patience: float,
    ) -> None:
        self.folder, self._end = folder, end
        self._attack, self.patience = attack, patience
        self.lost: list[str] = []
        self._start(first)

    def _start(self, first: int) -> None:
        task = (self.folder, first, self._end)
        self._process = get_context("spawn").Process(target=self._attack, args=task)
        self._process.start()
        self._began = time.time()

    def notes(self) -> list[tuple[str, int, str]]:
        """Return kind and number of every case that was begun, and how it ended."""
        found: dict[tuple[str, int], str] = {}
        with suppress(FileNotFoundError):
            for line in (self.folder / NOTES).read_text().splitlines():
                kind, number, ending = json.loads(line)
                found[kind, number] = ending
        return [(*case, ending) for case, ending in found.items()]

    def has_ended(self) -> bool:
        """Return whether it has done its work; let another process go on where one is lost."""
        if self._process.exitcode == 0:
            return True
        if self._process.exitcode is None:
            quiet = time.time() - self._last_note()
            if quiet < self.patience:
                return False
            self._process.kill()
            self._process.join()
            how = f"nothing has moved for {quiet:.0f} s"
        else:
            how = f"the process ended with {self._process.exitcode}"
        kind, number, _ = (self.notes() or [("start", 0, "")])[-1]
        self.lost.append(f"{kind}:{number} {how}\n{self._where()}")
        if time.time() > self._end:
            return True
        self._start(number + 1)
        return False

    def _last_note(self) -> float:
        with suppress(FileNotFoundError):
            return max(self._began, (self.folder / NOTES).stat().st_mtime)
        return self._began

    def _where(self) -> str:
        """Return what was shown of the place where the process hung."""
        with suppress(FileNotFoundError):
            return (self.folder / SHOWN).read_text()[-3000:]
        return ""


def work(folder: Path, first: int, end: float) -> None:
    """Attack until a time, beginning with a number, and note every case before and after it."""
    number = first
    with (folder / NOTES).open("a", buffering=1) as notes, (folder / SHOWN).open("w") as shown:
        while time.time() < end:
            for kind in ATTACKS:
                notes.write(json.dumps((kind, number, "begun")) + "\n")
                try:
                    ending = str(judge(folder, kind, number, shown))
                except Found as what:
                    ending = f"found {what}"
                notes.write(json.dumps((kind, number, ending)) + "\n")
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            (folder / MEMORY).write_text(str(most))
            number += 1


def report(attackers: list[Attacker]) -> bool:
    """Print what was counted and found; return whether nothing was found."""
    notes = [note for attacker in attackers for note in attacker.notes()]
    for kind in ATTACKS:
        codes = Counter(ending for this, _, ending in notes if this == kind and ending.isdigit())
        print(f"{kind:11} {codes.total():6} cases, by exit code {dict(sorted(codes.items()))}")
    found = [line for attacker in attackers for line in attacker.lost]
    found += [f"{kind}:{number} {what}" for kind, number, what in notes if what.startswith("found")]
    sizes = [path.read_text() for it in attackers for path in it.folder.glob(MEMORY)]
    most = max(map(int, sizes), default=0)
    print(f"most memory: {most / 1e9:.2f} GB")
    if most > MOST_BYTES:
        found.append(f"a process took {most / 1e9:.1f} GB")
    print(f"{len(found)} found", *found, sep="\n\n")
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="KIND:NUMBER", help="one case again")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory(prefix="sgpmic-fuzz-") as place:
        (Path(place) / "origin").mkdir()
        prepare(Path(place) / "origin")
        if options.only:
            kind, number = options.only.split(":")
            print("ended with", judge(Path(place), kind, int(number)))
            return
        end = time.time() + 60 * options.minutes
        attackers = []
        for k in range(options.processes):
            mine = Path(place) / f"worker-{k}"
            mine.mkdir()
            shutil.copytree(Path(place) / "origin", mine / "origin")
            first = 1_000_000 * options.seed + 10_000 * k
            attackers.append(Attacker(mine, first, end, work, LONGEST + 2 * DEAF))
        running = list(attackers)
        while running:
            time.sleep(0.5)
            running = [attacker for attacker in running if not attacker.has_ended()]
        fine = report(attackers)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
