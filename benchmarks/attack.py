"""Fault injection: kill, stop and starve fits, and count how many end as undisturbed ones.

    python benchmarks/attack.py [--only kill full-disk] [--share 0.1] [--seed 0] [--out attack.csv]

Every case runs ``sgpmic fit`` on a small table in a folder of its own, does something to it, looks
at what is left and what was said, and resumes. A case passes if only our own messages were printed,
no process or temporary file is left, and the final labels equal those of an undisturbed run byte
for byte. Full disks and read-only folders are small file systems in memory, which Linux lets us
mount in a namespace of our own (``unshare``); only root can make a folder read-only that is in use
(``chattr``).
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from watched_fit import (
    OPTIONS,
    Broken,
    Fit,
    Left,
    check_gone,
    check_resumed,
    check_words,
    command,
    environment,
    moment_of,
    still_there,
    undisturbed,
)

#: The exit codes of a refusal, of a lost process, and of an interrupted fit.
REFUSED, TRY_AGAIN, INTERRUPTED = 2, 75, 130
#: How often a fit is killed before it is left alone.
CHAIN = 3

Rng = np.random.Generator


# ------------------------------------------------------------------------------------ the attacks


def at_random(fit: Fit, left: Left, rng: Rng, *, learning: bool) -> bool:
    """Wait for a random moment of a fit; return whether it still runs."""
    part = rng.uniform(0.0, 1.0)
    if learning:
        in_time = fit.wait_for(fit.has_learned) and fit.wait(part * left.learning)
        left.learning *= 1.1 if in_time else 0.7
    else:
        in_time = fit.wait(part * left.whole)
        left.whole *= 1.1 if in_time else 0.7
    return in_time


def kill(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """A fit in one process is killed, resumed, killed again, and resumed.

    A third of the kills come anywhere, the others after a checkpoint.
    """
    moments = []
    for again in range(CHAIN):
        fit = Fit(box, *(("--resume",) if again else ()))
        if not at_random(fit, left, rng, learning=again > 0):
            break
        fit.process.kill()
        fit.end()
        moments.append(moment_of(fit))
    check_resumed(fit, left.labels)
    return moments


def kill_of_two(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """One of two processes is killed, or all at once, as in a power failure; repeatedly."""
    moments = []
    for again in range(CHAIN):
        fit = Fit(box, *(("--resume",) if again else ()), n_processes=2)
        if not (at_random(fit, left, rng, learning=again > 0) and fit.wait_for(fit.has_started)):
            break
        victim = ("process 0", "process 1", "all at once")[(number + again) % 3]
        if victim == "all at once":
            os.killpg(fit.process.pid, signal.SIGKILL)
            fit.end()
        else:
            with suppress(ProcessLookupError, IndexError):  # it has just ended
                os.kill(fit.workers()[int(victim[-1])], signal.SIGKILL)
            code, said = fit.end()
            if code == 0:
                break
            if code != TRY_AGAIN:
                raise Broken(f"{victim} was killed: exit code {code}, {said[-600:]}")
            check_words(said, "--resume")
        check_gone(box)
        moments.append(f"{victim}, {moment_of(fit)}")
    check_resumed(fit, left.labels, n_processes=2)
    return moments


def stop_of_two(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """One of two processes is stopped: the heartbeat of 30 seconds finds out."""
    fit = Fit(box, n_processes=2)
    if not at_random(fit, left, rng, learning=True) or len(fit.workers()) < 2:
        return []
    began = time.monotonic()
    os.kill(fit.workers()[number % 2], signal.SIGSTOP)
    code, said = fit.end()
    seconds = time.monotonic() - began
    if code != TRY_AGAIN:
        raise Broken(f"exit code {code} after {seconds:.0f} s: {said[-600:]}")
    check_words(said, "does not answer", "--resume", str(box))
    check_gone(box)
    check_resumed(fit, left.labels, n_processes=2)
    return [f"process {number % 2}, noticed within {10 * np.ceil(seconds / 10):.0f} s"]


def signal_launcher(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """The launcher of two processes alone is told to end, or killed."""
    fit = Fit(box, n_processes=2)
    if not at_random(fit, left, rng, learning=number % 3 > 0):
        return []
    what = (signal.SIGTERM, signal.SIGKILL)[number % 2]
    fit.process.send_signal(what)
    seconds = check_gone(box)
    code, said = fit.end()
    if code == 0:
        return []
    # Before it has started, no handler catches a signal.
    if what == signal.SIGTERM and code not in (INTERRUPTED, -what):
        raise Broken(f"exit code {code}: {said[-600:]}")
    check_words(said)
    files = {path: path.stat() for path in fit.out.rglob("*")}
    time.sleep(2.0)
    if files.keys() != {*fit.out.rglob("*")} or any(
        path.stat().st_mtime_ns != about.st_mtime_ns for path, about in files.items()
    ):
        raise Broken("something was written after the end")
    moment = moment_of(fit)
    check_resumed(fit, left.labels, n_processes=2)
    return [f"{what.name}, {moment}, all gone within {np.ceil(seconds):.0f} s"]


@contextmanager
def small_disk(place: Path, n_bytes: int) -> Iterator[Path]:
    """Provide a file system of a given size."""
    place.mkdir()
    mount("-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def full_disk(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """The disk is full at a random moment; every other time over the results of another run."""
    disk = box / "disk"
    before = box.parent / "undisturbed-other" / "run"
    over = number % 2 == 1
    size = int(np.exp(rng.uniform(np.log(4096), np.log(left.n_bytes))))
    with small_disk(disk, 10**8):
        out = disk / "run"
        earlier = b""
        if over:
            shutil.copytree(before, out)
            earlier = (out / "labels.csv").read_bytes()
            usage = os.statvfs(disk)
            size += (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        mount("-o", f"remount,size={size}", str(disk))
        fit = Fit(box, *(("--force",) if over else ()), out=out)
        code, said = fit.end()
        if code == 0:
            return []
        if code != REFUSED:
            raise Broken(f"{size} bytes: exit code {code}, {said[-600:]}")
        check_words(said, "No space left on device")
        if earlier and (out / "labels.csv").read_bytes() != earlier:
            raise Broken("the earlier results are gone")
        hidden = [path.name for path in out.rglob(".*")] if out.exists() else []
        if hidden:
            raise Broken(f"{size} bytes: {hidden} stay")
        learned = fit.has_checkpoint()
        mount("-o", "remount,size=100000000", str(disk))
        check_resumed(fit, left.labels, *(("--force",) if over and not learned else ()))
    return [f"{'over a run, ' if over else ''}{'with' if learned else 'without'} a checkpoint"]


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """Make a folder read-only, even for root. Remounting would fail: the lock file is open."""
    change(folder, "+i")
    try:
        yield
    finally:
        change(folder, "-i")


def change(folder: Path, attribute: str) -> None:
    subprocess.run(["chattr", "-R", attribute, str(folder)], check=False, capture_output=True)


def read_only(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """The folder becomes read-only during the fit, as on failing disks."""
    fit = Fit(box)
    if not at_random(fit, left, rng, learning=True):
        return []
    with frozen(fit.out):
        code, said = fit.end()
        moment = moment_of(fit)
    if code == 0:
        return []
    if code != REFUSED:
        raise Broken(f"exit code {code}, {said[-600:]}")
    check_words(said, "Operation not permitted")
    check_resumed(fit, left.labels)
    return [moment]


#: Commands around a folder that cannot be written to, and how they must end. ``ro`` is such a
#: folder, with a finished run, an interrupted one and a table in it.
COMMANDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (REFUSED, ("fit", "t.npy", *OPTIONS, "--out", "ro/new")),
    (REFUSED, ("fit", "t.npy", *OPTIONS, "--out", "ro/run", "--force")),
    (REFUSED, ("fit", "t.npy", *OPTIONS, "--out", "ro/half", "--resume")),
    (0, ("fit", "t.npy", *OPTIONS, "--out", "ro/run", "--resume")),  # nothing is left to do
    (0, ("fit", "ro/t.npy", *OPTIONS, "--out", "new")),
    (0, ("info", "ro/run")),
    (0, ("predict", "ro/run", "ro/t.npy", "--out", "new.csv")),
    (REFUSED, ("predict", "ro/run", "t.npy", "--out", "ro/new.csv")),
    (REFUSED, ("report", "ro/run", "--table", "t.npy")),
)


def interrupted(folder: Path) -> Path:
    """Return the folder of a run that was killed after a checkpoint."""
    box = folder / "interrupted"
    while not (box / "run" / "checkpoint.sgpmic").exists():
        box.mkdir(exist_ok=True)
        fit = Fit(box, "--force")
        if fit.wait_for(fit.has_learned):
            fit.process.kill()
        fit.end()
    return box / "run"


def read_only_commands(box: Path, rng: Rng, number: int, left: Left) -> list[str]:
    """Commands that read from, and write to, a read-only folder."""
    code, words = COMMANDS[number % len(COMMANDS)]
    shutil.copy(box.parent / "t.npy", box)
    with small_disk(box / "ro", 10**8) as disk:
        shutil.copytree(box.parent / "undisturbed-1-second" / "run", disk / "run")
        shutil.copy(box / "t.npy", disk)
        shutil.copytree(interrupted(box.parent), disk / "half")
        mount("-o", "remount,ro", str(disk))
        done = subprocess.run(
            command(*words), env=environment(box), cwd=box, capture_output=True, text=True
        )
        said = " ".join((done.stdout + done.stderr).split())
        if done.returncode != code:
            raise Broken(f"{' '.join(words)}: exit code {done.returncode}, {said[-600:]}")
        check_words(said, *(("Read-only file system",) if code == REFUSED else ()))
    return ["refused" if code == REFUSED else "done"]


class Attack(NamedTuple):
    """What is done, how often, and to a fit of how many processes."""

    do: Callable[[Path, Rng, int, Left], list[str]]
    times: int
    n_processes: int = 1


ATTACKS = {
    "kill": Attack(kill, 50),
    "kill-of-two": Attack(kill_of_two, 20, 2),
    "stop-of-two": Attack(stop_of_two, 4, 2),
    "launcher": Attack(signal_launcher, 12, 2),
    "full-disk": Attack(full_disk, 20),
    "read-only": Attack(read_only, 6),
    "read-only-commands": Attack(read_only_commands, len(COMMANDS)),
}


# -------------------------------------------------------------------------------------- the count


def repeat(name: str, folder: Path, times: int, left: Left, seed: int) -> tuple[Counter[str], int]:
    """Repeat an attack until enough came in time; return what was seen, and what broke."""
    attack = ATTACKS[name]
    seen: Counter[str] = Counter()
    broken = number = 0
    while sum(seen.values()) + broken < times:
        box = folder / f"{name}-{number}"
        box.mkdir()
        rng = np.random.default_rng([seed, sorted(ATTACKS).index(name), number])
        try:
            what = attack.do(box, rng, number, left)
            seen.update(what)
        except Broken as error:
            broken += 1
            print(f"{name} {number}: {error}", flush=True)
        except KeyboardInterrupt:
            print(f"{name} was stopped", flush=True)
            for pid in still_there(box):
                os.kill(pid, signal.SIGKILL)
            break
        shutil.rmtree(box)
        number += 1
    return seen, broken


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(6.0 * k, 1.0, size=(60, 3)) for k in range(3)])
    np.save(folder / "t.npy", rows)
    other = folder / "undisturbed-other"
    other.mkdir()
    code, said = Fit(other, "--seed", "1").end()
    if code != 0:
        raise SystemExit(said)


def in_own_namespace() -> None:
    """Restart in a private mount namespace, and end with this program."""
    if "SGPMIC_ATTACK_MOUNTS" not in os.environ:
        os.environ["SGPMIC_ATTACK_MOUNTS"] = "1"
        who = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
        os.execvp("unshare", ["unshare", *who, sys.executable, *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--share", type=float, default=1.0, help="of the number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    in_own_namespace()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was counted is shown
    lines = []
    with tempfile.TemporaryDirectory(prefix="sgpmic-attack-") as place:
        folder = Path(place)
        write_tables(folder)
        alone = {
            n: undisturbed(folder, n) for n in {ATTACKS[name].n_processes for name in options.only}
        }
        for name in options.only:
            attack = ATTACKS[name]
            began = time.monotonic()
            times = max(1, round(options.share * attack.times))
            seen, broken = repeat(name, folder, times, alone[attack.n_processes], options.seed)
            held = sum(seen.values())
            print(
                f"{name}: {held} of {held + broken} held ({time.monotonic() - began:.0f} s)",
                *(f"{count:5} {what}" for what, count in sorted(seen.items())),
                sep="\n",
                flush=True,
            )
            lines += [(name, what, count) for what, count in sorted(seen.items())]
            lines += [(name, "broken", broken)] if broken else []
    if options.out:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows([("attack", "what", "cases"), *lines])
    sys.exit(1 if any(what == "broken" for _, what, _ in lines) else 0)


if __name__ == "__main__":
    main()
