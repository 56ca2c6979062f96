"""Learn the networks of the committee again, from nothing: ``make judge``.

1. All members cluster made-up problems; the judge learns how right each is.
2. With that judge the committee votes on other problems; from these its calibration and the number
   of clusters are learned.

What was observed stays in a folder, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import sgpmic.committee
from judge import learn
from judge.observe import Arrays, observe_all, observe_members, observe_votes, read_all
from sgpmic.committee.judge import WEIGHTS_FILE, load_networks

WEIGHTS = Path(sgpmic.committee.__file__).with_name(WEIGHTS_FILE)
#: The problems that the judge learns from, those that it votes on for the number of clusters, and
#: how many of these the calibration learns from: with all, more rows changed than got better.
JUDGED, VOTED, CALIBRATED = 8_000, 3_368, 1_580


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m judge", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("build/judge"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--judged", type=int, default=JUDGED)
    parser.add_argument("--voted", type=int, default=VOTED)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each observation")
    parser.add_argument("--stop-after", choices=["judge", "votes"])
    options = parser.parse_args()

    def observe(what: Callable[[int], Arrays], seeds: range, name: str) -> list[Arrays]:
        paths = observe_all(what, seeds, options.folder, name, options.jobs, options.seconds)
        return [observed for _, observed in read_all(paths)]

    members = observe(observe_members, range(options.judged), "members")
    networks = {"judge": learn.learn_judge(members)}
    learn.save_networks(WEIGHTS, networks)
    if options.stop_after == "judge":
        return
    load_networks.cache_clear()
    first = 1_000_000  # problems that the judge has not seen
    votes = observe(observe_votes, range(first, first + options.voted), "votes")
    if options.stop_after == "votes":
        return
    networks["calibration"] = learn.learn_calibration(votes[:CALIBRATED])
    networks["number of clusters"] = learn.learn_number(votes)
    learn.save_networks(WEIGHTS, networks)


if __name__ == "__main__":
    main()
