"""Retrain the networks of the committee from scratch: ``make judge``.

1. All members cluster synthetic problems; the judge learns to predict the ARI of each.
2. With that judge the committee votes on other problems, on which its calibration is trained.
3. On a third set it votes for every number of clusters, to train the choice of that number.

Observations are cached in a folder, so that an interrupted run resumes where it stopped. The new
networks replace those in the package, even in a trial.
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
from judge.problems import make_gaps, make_mixed, make_noise
from sgpmic.committee.judge import WEIGHTS_FILE, load_networks

WEIGHTS = Path(sgpmic.committee.__file__).with_name(WEIGHTS_FILE)
#: Seeds of the training problems: of the judge, of the calibration, and of the number of clusters,
#: with clusters and without.
JUDGED, VOTED = range(15_644), range(1_000_000, 1_003_500)
#: ... and of tables whose clusters show in few features, for the calibration.
GAPS = range(6_000_000, 6_000_700)
COUNTED, NOISE = range(3_000_000, 3_005_460), range(4_000_000, 4_000_400)
#: ... and of tables with categories and missing cells, for both.
MIXED_VOTED, MIXED_COUNTED = range(8_000_000, 8_000_500), range(7_000_000, 7_001_200)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m judge", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("build/judge"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--share", type=float, default=1.0, help="of the problems, for a trial")
    options = parser.parse_args()
    # Votes depend on the judge: those of a trial must not be reused by another run.
    folder = options.folder / (f"share-{options.share:g}" if options.share < 1 else "")

    def observe(what: Callable[[int], Arrays], seeds: range, name: str) -> list[Arrays]:
        some = seeds[: max(1, round(options.share * len(seeds)))]
        paths = observe_all(what, some, folder, name, options.jobs)
        return [observed for _, observed in read_all(paths)]

    networks = {"judge": learn.learn_judge(observe(observe_members, JUDGED, "members"))}
    learn.save_networks(WEIGHTS, networks)  # for the votes
    load_networks.cache_clear()
    voted = observe(observe_votes, VOTED, "votes")
    voted += observe(partial(observe_votes, make=make_gaps), GAPS, "gaps")
    voted += observe(partial(observe_votes, make=make_mixed), MIXED_VOTED, "mixed votes")
    networks["calibration"] = learn.learn_calibration(voted)
    counted = observe(observe_numbers, COUNTED, "numbers")
    noise = observe(partial(observe_numbers, make=make_noise), NOISE, "noise")
    mixed = observe(partial(observe_numbers, make=make_mixed), MIXED_COUNTED, "mixed numbers")
    networks["number of clusters"] = learn.learn_number(counted + noise + mixed)
    learn.save_networks(WEIGHTS, networks)


if __name__ == "__main__":
    main()
