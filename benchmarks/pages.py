"""Write measured figures into README.md and docs/, from the result files.

    python benchmarks/pages.py

On a page, what stands between ``<!-- from NAME -->`` and ``<!-- end -->`` is made by the function
of that name in ``BLOCKS``, from a file in ``benchmarks/results`` or ``docs/paper``. Nothing is
measured here. ``tests/test_documentation.py`` fails where a page differs from its result file.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from arena import METHODS as ARENA_METHODS
from arena_summary import share, summarize

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- from (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

#: Problems of the arena by what their clusters look like; each has two variants.
CLOUDS = ("blobs10", "aniso", "varied", "sizes")
CURVES = ("moons", "circles", "spiral", "arcs")
SHAPE_METHODS = (
    *("SGPMIC", "k-means", "Gaussian mixture", "spectral", "Genie", "HDBSCAN", "UMAP + mixture"),
)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]], n_left: int = 1) -> str:
    """Return a Markdown table; the first ``n_left`` columns are aligned to the left."""
    head = list(headings)
    rule = ["---"] * n_left + ["---:"] * (len(head) - n_left)
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [head, rule, *rows])


def measured(value: str) -> str:
    """Return a score of a result file as it stands in a table; it may be empty."""
    return share(float(value or "nan"))


def two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


# ------------------------------------------------------------------------------ quality


def arena() -> str:
    fixed = {name for name, method in ARENA_METHODS.items() if not method.seeded}
    return summarize(read(RESULTS / "arena.csv"), list(ARENA_METHODS), fixed, True, 6)


def arena_shapes() -> str:
    """Return mean ARI and median seconds on clouds and on curves."""
    fits: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for fit in read(RESULTS / "arena.csv"):
        fits[fit["method"], fit["set"]].append((float(fit["ari"]), float(fit["seconds"])))
    rows = []
    for method in SHAPE_METHODS:
        cells = [method]
        for kind in (CLOUDS, CURVES):
            means = [np.mean(fits[method, f"{name}{i}"], axis=0) for name in kind for i in (0, 1)]
            ari, seconds = np.mean(means, axis=0)[0], np.median(means, axis=0)[1]
            cells += [share(ari), two_digits(seconds)]
        rows.append(cells)
    rows.sort(key=lambda row: -float(row[1]) - float(row[3]))
    return table(("method", "clouds: ARI", "seconds", "curves: ARI", "seconds"), rows)


def collection() -> str:
    lines = read(RESULTS / "collection.csv")
    parts = []
    for group in ("tables", "shapes"):
        mine = [line for line in lines if line["group"] == group]
        rows = [[line["method"], *(measured(line[m]) for m in ("ari", "ece"))] for line in mine]
        parts.append(f"**{group.capitalize()}: {mine[0]['problems']} problems**")
        parts.append(table(("method", "ARI", "ECE"), rows))
    return "\n\n".join(parts)


def collection_summary() -> str:
    lines = {(line["group"], line["method"]): line for line in read(RESULTS / "collection.csv")}
    methods = [method for group, method in lines if group == "tables"]
    rows = []
    for method in methods:
        both = [lines[group, method] for group in ("tables", "shapes")]
        rows.append([method, *(measured(line[m]) for line in both for m in ("ari", "ece"))])
    n_tables, n_shapes = (lines[g, methods[0]]["problems"] for g in ("tables", "shapes"))
    return table(
        ("method", f"{n_tables} tables: ARI", "ECE", f"{n_shapes} shape problems: ARI", "ECE"), rows
    )


def how_many() -> str:
    lines = read(RESULTS / "how_many.csv")
    methods = list(lines[0])[6:]
    names = {
        "blobs": "sets of Gaussian blobs, 1 to 9 clusters",
        "made-up shapes": "made-up shapes",
        "shapes": "shape problems of a public collection",
        "tables": "real tables of a public collection",
    }
    rows = []
    for part, name in names.items():
        mine = [line for line in lines if line["part"] == part]
        right = [np.mean([line[m] in line["true"].split() for line in mine]) for m in methods]
        rows.append([f"{len(mine)} {name}", *(f"{100 * r:.0f} %" for r in right)])
    return table(("exact number found", *methods), rows)


def how_many_probabilities() -> str:
    pairs = np.array(
        [
            (float(line["probability"]), line["SGPMIC"] in line["true"].split())
            for line in read(RESULTS / "how_many.csv")
            if not line["part"].startswith("public")
        ]
    )
    rows = []
    for low, high in ((0.0, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.01)):
        inside = pairs[(low <= pairs[:, 0]) & (pairs[:, 0] < high)]
        said, right = inside.mean(axis=0)
        rows.append([len(inside), f"{said:.2f}", f"{right:.2f}"])
    return table(("tables", "mean probability", "right"), rows, n_left=0)


def missing() -> str:
    """Return mean ranks over tables and kinds of gaps, and what is left with 30 % missing."""
    names = {
        "sgpmic": "gaps left",
        "mean": "means",
        "nearest": "nearest rows",
        "iterative": "iterative",
        "complete rows": "complete rows",
    }
    values: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    lines = read(RESULTS / "missing.csv")
    for line in lines:
        key = (line["set"], line["hole"], line["method"])
        values[key].append((float(line["ari"]), -float(line["error"] or "nan")))
    problems = sorted({key[:2] for key in values if key[1] != "0"})
    rows = []
    for place, title in enumerate(("clusters (ARI)", "imputed cells (RMSE)")):
        scores = [
            [np.mean(values.get((*problem, name), [(-1e9, -1e9)]), axis=0)[place] for name in names]
            for problem in problems
        ]
        ranks = rankdata(-np.round(np.nan_to_num(scores, nan=-1e9), 3), axis=1).mean(axis=0)
        rows.append([title, *(f"{rank:.2f}" for rank in ranks)])
    ari = {key: np.mean(found, axis=0)[0] for key, found in values.items()}
    kept = {
        s: ari[s, "0.3", "sgpmic"] / ari[s, "0", "sgpmic"] for s, hole in problems if hole == "0.3"
    }
    shares = (f"{s} {100 * v:.0f} %" for s, v in sorted(kept.items(), key=lambda pair: -pair[1]))
    covered = [float(line["coverage"]) for line in lines if line["coverage"]]
    return (
        f"{table(('mean rank', *names.values()), rows)}\n\n"
        "With 30 % of the cells missing at random, the clusters keep this share of the ARI of the "
        f"complete table: {', '.join(shares)}. {100 * np.mean(covered):.0f} % of the imputed cells "
        "lie within their 90 % intervals."
    )


def pictures() -> str:
    names = {"sgpmic": "SGPMIC", "umap": "UMAP"}
    rows = [
        [
            f"{int(line['rows']):,} {line['table']}",
            names[line["picture"]],
            measured(line["same_group"]),
            measured(line["same_neighbors"]),
            line["seconds"],
        ]
        for line in read(RESULTS / "pictures.csv")
        if line["picture"] in names
    ]
    return table(("table", "picture", "same group", "same neighbors", "seconds"), rows, n_left=2)


def stability() -> str:
    names = {
        "noise 1e-12": "relative noise of 1e-12",
        "rows": "rows in another order",
        "features": "features in another order",
        "times 8": "data times 8",
        "times 10": "data times 10",
        "plus 1000": "data plus 1000",
        "seed": "another seed",
    }
    lines = read(RESULTS / "stability.csv")
    rows = []
    for change in dict.fromkeys(line["change"] for line in lines):
        mine = [line for line in lines if line["change"] == change]
        ari = [float(line["ari"]) for line in mine]
        same = sum(line["same"] == "1" for line in mine)
        rows.append(
            [names[change], share(float(np.mean(ari))), share(min(ari)), f"{same} of {len(mine)}"]
        )
    return table(("change", "mean ARI", "lowest", "identical"), rows)


# ------------------------------------------------------------------------------ performance


def gpu(part: str, what: str) -> dict[str, Any]:
    lines = (RESULTS / "gpu.jsonl").read_text(encoding="utf-8").splitlines()
    return next(
        line for line in map(json.loads, lines) if (line["part"], line["what"]) == (part, what)
    )


def gpu_fits() -> str:
    def twice(part: str) -> str:
        first, again = gpu(part, "fit")["seconds"], gpu(f"{part} again", "fit")["seconds"]
        return f"{first:.1f} s, {again:.1f} s"

    first, again = (gpu("iris", f"gpu, {which}")["seconds"] for which in ("first", "again"))
    rows = [
        (
            "one value and gradient of the bound: 1,000,000 rows, 50 features, 10 Gaussian "
            "processes, 100 inducing points",
            f"{gpu('evaluation', 'value and gradient')['ms']:.1f} ms",
        ),
        ("a fit of such a table, and of another one", twice("fit")),
        ("10,000,000 rows, 20 features, 5 clusters, 50 inducing points", twice("large")),
        ("Iris", f"{first:.1f} s, {again:.1f} s"),
        (
            "`predict` of 1,000,000 rows of 20 features, by a model of 20,000",
            f"{gpu('predict', 'predict 1000000')['seconds']:.1f} s",
        ),
        (
            "the same, `score_samples`",
            f"{gpu('predict', 'score_samples 1000000')['seconds']:.1f} s",
        ),
    ]
    return table(("what", "time"), rows)


def gpu_speedup() -> str:
    rows = []
    for n in (1000, 10_000, 100_000, 1_000_000):
        line = gpu("cpu", f"N={n}")
        rows.append([f"{n:,}", *(two_digits(line[k]) for k in ("cpu_ms", "gpu_ms", "ratio"))])
    return table(("rows", "CPU, ms", "GPU, ms", "speedup"), rows, n_left=0)


def fit_time() -> str:
    """Return the seconds of every task, from nothing and with kept programs, and the targets."""
    tasks: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for line in read(RESULTS / "fit_time.csv"):
        tasks[line["task"]][line["programs"]] = line
    rows = []
    for name, found in tasks.items():
        cells = [name]
        for programs in ("from nothing", "kept"):
            if programs not in found:
                cells.append("–")
                continue
            seconds, target = found[programs]["seconds"], found[programs]["target"]
            cells.append(f"{seconds} ({target})" if target else seconds)
        rows.append(cells)
    return table(("", "from nothing, s", "with kept programs, s"), rows)


def processes() -> str:
    lines = read(RESULTS / "processes.csv")
    alone = float(lines[0]["best"])
    rows = [
        [line["processes"], f"{float(line['best']):.3f}", f"{alone / float(line['best']):.2f}"]
        for line in lines
    ]
    return table(("processes", "seconds", "speedup"), rows, n_left=0)


def expected() -> str:
    lines = read(RESULTS / "expected.csv")
    return table(lines[0], [line.values() for line in lines])


# ------------------------------------------------------------------------------ the paper


def paper_means() -> str:
    """Return means and mean ranks of every method; ranks as in ``paper.comparison``."""
    lines = read(ROOT / "docs/paper/table.csv")
    methods = list(dict.fromkeys(line["method"] for line in lines))
    lines = [line for line in lines if line["mean"]]  # DEC does not run in one dimension
    rows = []
    for method in methods:
        cells: list[str] = [method]
        for metric in ("ACC", "NMI"):
            mine = [line for line in lines if (line["metric"], line["method"]) == (metric, method)]
            printed = [float(line["paper_mean"]) for line in mine if line["paper_mean"]]
            cells.append(f"{np.mean([float(line['mean']) for line in mine]):.2f}")
            cells.append(f"{np.mean(printed):.2f}" if printed else "–")
            cells.append(f"{_paper_ranks(lines, metric, len(methods))[method]:.2f}")
        rows.append(cells)
    return table(("method", "ACC", "paper", "rank", "NMI", "paper", "rank"), rows)


def _paper_ranks(lines: list[dict[str, str]], metric: str, n_methods: int) -> dict[str, float]:
    problems: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for line in lines:
        if line["metric"] == metric:  # the same problem again has the same mean
            found = problems[line["dataset"], line["n_components"]]
            found[line["method"]] = round(float(line["mean"]), 2)
    ranks: dict[str, list[float]] = defaultdict(list)
    for means in problems.values():
        stretch = (n_methods - 1) / (len(means) - 1)
        for method, rank in zip(means, rankdata([-m for m in means.values()]), strict=True):
            ranks[method].append(1.0 + (rank - 1.0) * stretch)
    return {method: float(np.mean(places)) for method, places in ranks.items()}


#: What a page may ask for, by the name in its marks.
BLOCKS: dict[str, Callable[[], str]] = {
    "arena.csv": arena,
    "arena.csv: clouds and curves": arena_shapes,
    "collection.csv": collection,
    "collection.csv: summary": collection_summary,
    "how_many.csv": how_many,
    "how_many.csv: probabilities": how_many_probabilities,
    "missing.csv": missing,
    "pictures.csv": pictures,
    "stability.csv": stability,
    "gpu.jsonl": gpu_fits,
    "gpu.jsonl: speedup": gpu_speedup,
    "fit_time.csv": fit_time,
    "processes.csv": processes,
    "expected.csv": expected,
    "paper/table.csv": paper_means,
}


def filled(text: str) -> str:
    """Return the text of a page with all its blocks written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n\n{found[3]}", text)


def main() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    main()
