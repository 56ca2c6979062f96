"""Training examples for the committee's networks: its results on synthetic problems."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from judge.problems import Problem, make_problem, without_constants
from sgpmic.committee.dimensions import MOST_EXAMINED, View, committee_view
from sgpmic.committee.examination import (
    MOST_TRIED,
    MOST_VOTED_ON,
    distinct_sample,
    find_tendency,
    gather_evidence,
)
from sgpmic.committee.geometry import DECIMALS, Geometry, without_copies
from sgpmic.committee.judge import pairwise_agreement, validity_indices
from sgpmic.committee.members import MEMBERS, cluster_all
from sgpmic.committee.voting import calibration_inputs, count_votes
from sgpmic.learning.gaps import impute_rows
from sgpmic.learning.preprocessing import find_categories, fit_scaler, sample_numbers
from sgpmic.process_group import ProcessGroup

Arrays = dict[str, np.ndarray[Any, Any]]

#: Problems per file.
CHUNK = 20
#: Rows per problem in the training data of the calibration.
_CALIBRATION_ROWS = 60


def scaled(problem: Problem) -> np.ndarray[Any, Any]:
    """Return the centered rows with features scaled one by one, or all by one number."""
    Y = problem.X - problem.X.mean(axis=0)
    scale = Y.std(axis=0)
    return (Y / (scale if problem.each else np.sqrt(np.mean(scale**2)))).round(7)


def asked_for(seed: int, problem: Problem) -> int:
    """Return the number of clusters to ask for: usually the true one, which users may not know."""
    rng = np.random.default_rng([seed, 1])
    k = int(problem.y.max()) + 1
    if k < 2 or rng.random() < 0.25:
        k = int(np.clip(round(k * np.exp(rng.normal(0, 0.5))), 2, 20))
    return min(k, len(problem.y) // 5)


def observe_members(seed: int) -> Arrays:
    """Return the partitions of all members, the judge's inputs, and the ARI of each partition."""
    problem = make_problem(seed)
    k = asked_for(seed, problem)
    geometry = Geometry(scaled(problem), k)
    found, _ = cluster_all(geometry, k)
    numbers = {name: i for i, name in enumerate(MEMBERS)}
    return {
        "indices": validity_indices(geometry, list(found.values()), k),
        "agreement": pairwise_agreement(np.stack(list(found.values())), k),
        "summary": np.array(geometry.summary),
        "ari": np.array([adjusted_rand_score(problem.y, each) for each in found.values()]),
        "members": np.array([numbers[name] for name in found], np.uint8),
        "labels": np.stack(list(found.values())).astype(np.uint8),
        "k": np.array([k, int(problem.y.max()) + 1]),
        "kind": np.array(problem.kind),
    }


def _observe_chunk(observe: Callable[[int], Arrays], job: tuple[range, Path]) -> tuple[int, float]:
    seeds, path = job
    began = time.perf_counter()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        content = {f"{seed}/{name}": a for seed in seeds for name, a in observe(seed).items()}
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(unfinished, **content)  # type: ignore[arg-type]
    unfinished.rename(path)
    return seeds.start, time.perf_counter() - began


def observe_all(
    observe: Callable[[int], Arrays], seeds: range, folder: Path, name: str, jobs: int
) -> list[Path]:
    """Observe problems in several processes, except those whose files already exist."""
    folder.mkdir(parents=True, exist_ok=True)
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    paths = [folder / f"{name}-{chunk.start:07d}.npz" for chunk in chunks]
    waiting = [job for job in zip(chunks, paths, strict=True) if not job[1].exists()]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for first, took in pool.map(partial(_observe_chunk, observe), waiting):
            print(f"{name} from {first}: {took:.1f} s", flush=True)
    return paths


def read_all(paths: Iterable[Path]) -> Iterator[tuple[int, Arrays]]:
    """Yield the seed and the observations of each problem."""
    for path in paths:
        with np.load(path) as content:
            by_seed: dict[int, Arrays] = {}
            for key in content.files:
                seed, _, name = key.partition("/")
                by_seed.setdefault(int(seed), {})[name] = content[key]
        yield from by_seed.items()


def seen(problem: Problem) -> tuple[View, ProcessGroup]:
    """Return what the committee sees of a problem in a fit."""
    group = ProcessGroup(len(problem.y))
    scaler = fit_scaler(problem.X, group, "each" if problem.each else "one")
    has_gaps = np.isnan(problem.X).any()
    imputed = impute_rows(problem.X, group, scaler) if has_gaps else problem.X
    return committee_view(problem.X, imputed, scaler, group), group


def observe_votes(seed: int, make: Callable[[int], Problem] = make_problem) -> Arrays:
    """Return the calibration's inputs for some rows, and whether the vote is right in each."""
    rng = np.random.default_rng([seed, 2])
    problem = _sampled(make(seed), MOST_VOTED_ON, rng)
    view, _ = seen(problem)
    sample = view.scaler.transform(view.rows).round(DECIMALS)
    distinct, place = without_copies(sample, view.n_factors)
    known = find_categories(problem.X) if view.n_factors else []
    geometry = Geometry(sample[distinct], MOST_TRIED)
    k = asked_for(seed, problem)
    levels = [each.levels[distinct] for each in known]
    _, opinion, shares, _ = count_votes(geometry, k, levels)
    inputs = calibration_inputs(geometry, shares, opinion)[place]
    some = rng.permutation(len(problem.y))[:_CALIBRATION_ROWS]
    return {
        "inputs": inputs[some].astype(np.float32),
        "right": matches(problem.y, shares.argmax(axis=1)[place])[some],
    }


def observe_numbers(seed: int, make: Callable[[int], Problem] = make_problem) -> Arrays:
    """Return the evidence for each number of clusters, and the ARI of the vote for it."""
    problem = _sampled(make(seed), MOST_EXAMINED, np.random.default_rng([seed, 2]))
    view, group = seen(problem)
    sample, distinct = distinct_sample(view, group)
    tendency, _ = find_tendency(view, sample, group)
    voted_on = sample_numbers(len(sample), MOST_VOTED_ON)
    inputs, _, partitions = gather_evidence(Geometry(sample[voted_on], MOST_TRIED), tendency)
    y = problem.y[distinct][voted_on]
    return {
        "candidates": np.arange(1, len(partitions) + 1),
        "inputs": inputs.astype(np.float32),
        "ari": np.array([adjusted_rand_score(y, each) for each in partitions]),
        "k": np.array(int(problem.y.max()) + 1),
        "kind": np.array(problem.kind),
    }


def _sampled(problem: Problem, most: int, rng: np.random.Generator) -> Problem:
    """Return the problem, subsampled to at most this many rows."""
    if len(problem.y) <= most:
        return problem
    rows = np.sort(rng.choice(len(problem.y), most, replace=False))
    y = np.unique(problem.y[rows], return_inverse=True)[1]
    return problem._replace(X=without_constants(problem.X[rows]), y=y)  # counts may be all zero


def matches(y: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which rows are right under the optimal assignment of clusters to classes."""
    k = int(max(y.max(), labels.max())) + 1
    table = np.zeros((k, k))
    np.add.at(table, (labels, y), 1)
    _, target = linear_sum_assignment(-table)
    return np.asarray(target[labels] == y)
