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
import resource
import shutil
import signal
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
import tests.conftest  # noqa: F401  (puts what tests share on the path)
from tests.cli.helpers import here
from tests.hardening.random_attacks import ATTACKS, prepare

LONGEST, MOST_BYTES = 60, 2_000_000_000
#: Seconds after an alarm that was not heard.
DEAF = 30
#: What an attacking process leaves in its folder: notes, where it hung, and how much it took.
NOTES, SHOWN, MEMORY = "notes.jsonl", "shown.txt", "memory.txt"
#: Done, refused, interrupted with a checkpoint.
ENDINGS = {0, 2, 75}


class Found(AssertionError):
    """What a command must not do."""


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
