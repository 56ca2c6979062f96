"""Learn the networks of the committee again, from nothing: ``make judge``.

1. All members cluster made-up problems; the judge learns how right each is.
2. With that judge the committee votes on other problems, from which its calibration is learned.
3. On a third set it votes for every number of clusters, from which the choice of that number is
   learned.

What was observed stays in a folder, so that an interrupted run goes on where it stopped. The
networks replace those in the package, also those of a trial.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import sgpmic.committee
from judge import learn
from judge.observe import (
    Arrays,
    observe_all,
    observe_members,
    observe_numbers,
    observe_votes,
    read_all,
)
from judge.problems import make_noise
from sgpmic.committee.judge import WEIGHTS_FILE, load_networks

WEIGHTS = Path(sgpmic.committee.__file__).with_name(WEIGHTS_FILE)
#: Seeds of the problems that each learns from: the judge, the calibration, and the number of
#: clusters, with and without clusters to find.
JUDGED, VOTED = range(16_000), range(1_000_000, 1_004_000)
COUNTED, NOISE = range(3_000_000, 3_006_400), range(4_000_000, 4_000_200)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m judge", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("build/judge"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--share", type=float, default=1.0, help="of the problems, for a trial")
    options = parser.parse_args()
    # What a trial's judge has voted for is of no use to another.
    folder = options.folder / (f"share-{options.share:g}" if options.share < 1 else "")

    def observe(what: Callable[[int], Arrays], seeds: range, name: str) -> list[Arrays]:
        some = seeds[: max(1, round(options.share * len(seeds)))]
        paths = observe_all(what, some, folder, name, options.jobs)
        return [observed for _, observed in read_all(paths)]

    networks = {"judge": learn.learn_judge(observe(observe_members, JUDGED, "members"))}
    learn.save_networks(WEIGHTS, networks)  # for the votes
    load_networks.cache_clear()
    networks["calibration"] = learn.learn_calibration(observe(observe_votes, VOTED, "votes"))
    counted = observe(observe_numbers, COUNTED, "numbers")
    noise = observe(partial(observe_numbers, make=make_noise), NOISE, "noise")
    networks["number of clusters"] = learn.learn_number(counted + noise)
    learn.save_networks(WEIGHTS, networks)


if __name__ == "__main__":
    main()
