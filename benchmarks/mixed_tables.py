"""Tables of numbers and categories with known clusters: SGPMIC behind a TableEncoder, and others.

    python benchmarks/mixed_tables.py [--rows 300] [--seeds 3] [--tables both noise] [--quick]
        [--csv benchmarks/results/mixed_tables.csv]

Adjusted Rand index, as a Markdown table. All methods get the number of clusters. The others get the
columns in the form they need: k-prototypes and k-means standardized numbers (k-means one-hot
categories as well), Gower's distance raw numbers. `--quick` leaves SGPMIC out.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

if __name__ == "__main__":
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = "1"

import gower
import numpy as np
import pandas as pd
from kmodes.kprototypes import KPrototypes
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sgpmic import SGPMIC, TableEncoder

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Generator = np.random.Generator
Table = tuple[pd.DataFrame, Labels]
#: Unnormalized probabilities of levels: a row for every cluster.
Rows = Sequence[Sequence[float]]


# ----------------------------------------------------------------------------------- the tables


def groups(rng: Generator, n: int, shares: list[float]) -> Labels:
    return np.sort(rng.choice(len(shares), n, p=shares))


def drawn(rng: Generator, labels: Labels, levels: list[str], rows: Rows) -> list[str]:
    """Draw a level for every row, with the probabilities of its cluster."""
    return [str(rng.choice(levels, p=np.asarray(rows[k]) / np.sum(rows[k]))) for k in labels]


def some_numbers(rng: Generator, labels: Labels, count: int, apart: float) -> dict[str, Floats]:
    """Draw numbers in units of their own, the clusters' means ``apart`` standard deviations."""
    k = labels.max() + 1
    means = rng.normal(scale=apart, size=(k, count))
    units = 10 ** rng.uniform(-1, 3, count)
    values = (means[labels] + rng.normal(size=(len(labels), count))) * units
    return {f"number {j + 1}": values[:, j] for j in range(count)}


def some_categories(
    rng: Generator, labels: Labels, counts: list[int], concentration: float
) -> dict[str, list[str]]:
    """Draw categories whose level probabilities differ between clusters."""
    k = labels.max() + 1
    found = {}
    for j, count in enumerate(counts):
        rows = rng.dirichlet(np.full(count, concentration), k)
        names = [f"level {chr(97 + i)}" for i in range(count)]
        found[f"category {j + 1}"] = drawn(rng, labels, names, rows.tolist())
    return found


def numbers_only(rng: Generator, n: int) -> Table:
    labels = groups(rng, n, [0.5, 0.3, 0.2])
    return pd.DataFrame(some_numbers(rng, labels, 6, 1.2)), labels


def categories_only(rng: Generator, n: int) -> Table:
    labels = groups(rng, n, [0.5, 0.3, 0.2])
    return pd.DataFrame(some_categories(rng, labels, [3, 3, 4, 4, 5, 5, 6, 2], 0.5)), labels


def both(rng: Generator, n: int) -> Table:
    labels = groups(rng, n, [0.4, 0.3, 0.3])
    table = some_numbers(rng, labels, 4, 1.0) | some_categories(rng, labels, [3, 4, 5, 2], 0.5)
    return pd.DataFrame(table), labels


def noise(rng: Generator, n: int) -> Table:
    """Draw as `both`, with a category of ten levels, one of four and a number, all
    uninformative."""
    table, labels = both(rng, n)
    table["nothing 1"] = rng.choice([f"code {i}" for i in range(10)], n)
    table["nothing 2"] = rng.choice(list("NESW"), n)
    table["nothing 3"] = rng.normal(size=n)
    return table, labels


def curved(rng: Generator, n: int) -> Table:
    """Draw clusters that are arcs in the numbers, and levels that lean to one side of them."""
    labels = groups(rng, n, [0.5, 0.5])
    angle = rng.uniform(0, np.pi, n)
    x = np.where(labels == 0, np.cos(angle), 1 - np.cos(angle))
    y = np.where(labels == 0, np.sin(angle), 0.5 - np.sin(angle))
    table = {
        "x": x + rng.normal(0, 0.12, n),
        "y": y + rng.normal(0, 0.12, n),
        "side": drawn(rng, labels, ["left", "right", "middle"], [[6, 2, 2], [2, 6, 2]]),
        "sort": drawn(rng, labels, ["p", "q"], [[3, 1], [1, 3]]),
    }
    return pd.DataFrame(table), labels


def titanic_like(rng: Generator, n: int) -> Table:
    """Draw single men, families with children, and wealthy couples."""
    labels = groups(rng, n, [0.5, 0.27, 0.23])
    child = (labels == 1) & (rng.random(n) < 0.5)
    age = np.choose(labels, [rng.normal(28, 8, n), rng.normal(35, 6, n), rng.normal(46, 11, n)])
    age = np.where(child, rng.uniform(0.5, 15, n), np.clip(age, 16, 80))
    fare = np.exp(rng.normal(np.asarray([2.1, 3.1, 4.4])[labels], 0.45))
    table = {
        "class": drawn(rng, labels, ["1st", "2nd", "3rd"], [[1, 3, 16], [0.5, 6, 7], [17, 2, 1]]),
        "sex": drawn(rng, labels, ["male", "female"], [[17, 3], [9, 11], [10, 10]]),
        "age": np.round(age, 1),
        "siblings": rng.poisson(np.asarray([0.1, 1.6, 0.5])[labels]),
        "parents": rng.poisson(np.asarray([0.05, 1.5, 0.3])[labels]),
        "fare": np.round(fare, 2),
        "port": drawn(rng, labels, list("SCQ"), [[14, 3, 3], [16, 3, 1], [10, 9, 1]]),
        "cabin": drawn(rng, labels, ["yes", "no"], [[1, 19], [3, 17], [16, 4]]),
    }
    return pd.DataFrame(table), labels


def adult_like(rng: Generator, n: int) -> Table:
    """Draw students, workers with families, professionals, and pensioners."""
    labels = groups(rng, n, [0.22, 0.35, 0.28, 0.15])
    age = rng.normal(np.asarray([22, 40, 43, 68])[labels], np.asarray([3, 9, 9, 5])[labels])
    hours = rng.normal(np.asarray([22, 41, 46, 12])[labels], np.asarray([8, 4, 7, 8])[labels])
    work: Rows = [[16, 1, 1, 2], [14, 2, 3, 1], [9, 4, 6, 1], [4, 3, 2, 11]]
    school: Rows = [[5, 14, 1, 0.2], [13, 5, 1, 0.2], [1, 4, 10, 5], [9, 5, 4, 1]]
    married: Rows = [[18, 1, 1, 0.1], [4, 13, 3, 0.2], [4, 14, 2, 0.2], [1, 9, 4, 6]]
    jobs: Rows = [[8, 6, 4, 1, 1], [3, 2, 5, 9, 1], [1, 3, 1, 1, 14], [4, 4, 4, 4, 4]]
    table = {
        "age": np.round(np.clip(age, 17, 90)),
        "work": drawn(rng, labels, ["private", "state", "own business", "none at all"], work),
        "education": drawn(rng, labels, ["school", "college", "bachelor's", "master's"], school),
        "marital": drawn(rng, labels, ["never", "married", "divorced", "widowed"], married),
        "occupation": drawn(rng, labels, ["service", "sales", "clerk", "craft", "expert"], jobs),
        "sex": drawn(rng, labels, ["male", "female"], [[1, 1], [7, 3], [6, 4], [1, 1]]),
        "hours": np.round(np.clip(hours, 1, 90)),
        "gain": np.where(rng.random(n) < 0.08, np.round(rng.lognormal(8, 1, n)), 0.0),
    }
    return pd.DataFrame(table), labels


TABLES: dict[str, Callable[[Generator, int], Table]] = {
    "numbers": numbers_only,
    "categories": categories_only,
    "both": both,
    "noise": noise,
    "curved": curved,
    "titanic": titanic_like,
    "adult": adult_like,
}


# ----------------------------------------------------------------------------------- the methods


def split(table: pd.DataFrame) -> tuple[Floats, pd.DataFrame]:
    """Return standardized numbers, and all other columns."""
    numbers = table.select_dtypes("number")
    scaled = (
        StandardScaler().fit_transform(numbers) if numbers.shape[1] else np.empty((len(table), 0))
    )
    return scaled, table.drop(columns=numbers.columns)


def k_prototypes(table: pd.DataFrame, k: int, seed: int) -> Labels:
    numbers, categories = split(table)
    if not categories.shape[1]:
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(numbers))
    if not numbers.shape[1]:
        from kmodes.kmodes import KModes

        return np.asarray(KModes(k, n_init=10, random_state=seed).fit_predict(categories))
    mixed = np.column_stack([numbers.astype(object), categories.to_numpy(object)])
    places = list(range(numbers.shape[1], mixed.shape[1]))
    found = KPrototypes(k, n_init=10, random_state=seed).fit_predict(mixed, categorical=places)
    return np.asarray(found)


def gower_average(table: pd.DataFrame, k: int, seed: int) -> Labels:
    is_text = [not pd.api.types.is_numeric_dtype(table[name]) for name in table]
    distances = gower.gower_matrix(table, cat_features=is_text)
    tree = linkage(squareform(distances, checks=False), "average")
    return np.asarray(fcluster(tree, k, "maxclust"))


def one_hot_k_means(table: pd.DataFrame, k: int, seed: int) -> Labels:
    numbers, categories = split(table)
    if categories.shape[1]:
        indicators = OneHotEncoder(sparse_output=False).fit_transform(categories)
        numbers = np.hstack([numbers, indicators])
    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(numbers))


def encoded(table: pd.DataFrame) -> tuple[Floats, bool]:
    """Return the encoded table, and whether its features share a unit."""
    encoder = TableEncoder().fit(table)
    return encoder.transform(table), encoder.has_categories_


def k_means_encoded(table: pd.DataFrame, k: int, seed: int) -> Labels:
    Y, one_unit = encoded(table)
    Y = Y if one_unit else StandardScaler().fit_transform(Y)
    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(Y))


def mixture_encoded(table: pd.DataFrame, k: int, seed: int) -> Labels:
    Y, one_unit = encoded(table)
    Y = Y if one_unit else StandardScaler().fit_transform(Y)
    model = GaussianMixture(k, covariance_type="diag", n_init=10, reg_covar=1e-3, random_state=seed)
    return np.asarray(model.fit_predict(Y))


def sgpmic(table: pd.DataFrame, k: int, seed: int) -> Labels:
    Y, one_unit = encoded(table)
    scale = "one" if one_unit else "auto"
    return np.asarray(SGPMIC(k, scale=scale, random_state=seed).fit_predict(Y))


METHODS: dict[str, Callable[[pd.DataFrame, int, int], Labels]] = {
    "SGPMIC": sgpmic,
    "k-prototypes": k_prototypes,
    "Gower, average": gower_average,
    "one-hot, k-means": one_hot_k_means,
    "TableEncoder, k-means": k_means_encoded,
    "TableEncoder, diagonal mixture": mixture_encoded,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--quick", action="store_true", help="without SGPMIC")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    methods = {
        name: run for name, run in METHODS.items() if not (options.quick and "SGPMIC" in name)
    }
    lines = []
    for name in options.tables:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            table, labels = TABLES[name](np.random.default_rng(seed), options.rows)
            for method, run in methods.items():
                start = time.perf_counter()
                with warnings.catch_warnings(action="ignore"):
                    found = run(table, int(labels.max()) + 1, seed)
                score = float(adjusted_rand_score(labels, found))
                seconds = time.perf_counter() - start
                lines.append((name, seed, method, score, seconds))
                print(f"{name} {seed} {method}: {score:.3f} ({seconds:.1f} s)", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("table", "seed", "method", "ari", "seconds"))
            writer.writerows(lines)
    scores = pd.DataFrame(lines, columns=["table", "seed", "method", "ari", "seconds"])
    means = scores.pivot_table("ari", "table", "method", sort=False)
    means = means.loc[options.tables, list(methods)]
    print("\n| table | " + " | ".join(methods) + " |")
    print("| --- |" + " --- |" * len(methods))
    for name, row in [*means.iterrows(), ("**mean**", means.mean())]:
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |")


if __name__ == "__main__":
    main()
