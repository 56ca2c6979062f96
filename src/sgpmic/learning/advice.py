"""What a user should know about a fit, as warnings: what happened and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sgpmic.exceptions import (
    ConvergenceWarning,
    DeadClusterWarning,
    DimensionsWarning,
    EmptyFeatureWarning,
    JitterWarning,
    NoStructureWarning,
    StartWarning,
)
from sgpmic.learning.result import Result
from sgpmic.learning.settings import FitSettings

#: Relative jitter up to here changes nothing that anybody sees.
_HARMLESS_JITTER = 1e-4


def advice(
    result: Result, settings: FitSettings, names: Any = None
) -> Iterator[tuple[type[Warning], str]]:
    """Yield the warnings that a fit deserves; ``names`` are those of the features, if any."""
    fit = result.selection.fit
    unseen = np.flatnonzero(~result.predictor.seen)
    if len(unseen):
        shown = ", ".join(str(j) if names is None else repr(str(names[j])) for j in unseen[:5])
        more = ", …" if len(unseen) > 5 else ""
        yield (
            EmptyFeatureWarning,
            f"{len(unseen)} of the features have no value in any row and were left out: {shown}"
            f"{more}.",
        )
    n_seen, n_components = int(result.predictor.seen.sum()), result.X.shape[1]
    # Two of one feature are the default, and make a plot.
    if n_components > max(n_seen, 2):
        yield (
            DimensionsWarning,
            f"n_components={n_components} is more than the table's {n_seen} features: what is "
            "beyond them holds nothing but noise. Use fewer, or n_components='auto'.",
        )
    support = result.structure.support
    if support is not None and not support.supported and result.S.shape[1] > 1:
        fewer = "n_clusters=1" if settings.n_clusters == "auto" else "n_clusters='auto'"
        yield (
            NoStructureWarning,
            f"{support.sentence()} What is called a cluster may be an arbitrary part of one cloud: "
            f"use {fewer}, or add features that tell groups apart.",
        )
    for note in fit.notes:
        yield StartWarning, note
    empty = int(np.sum(result.sizes == 0))
    if empty and settings.options.variational:
        yield (
            DeadClusterWarning,
            f"{empty} of {settings.n_clusters} clusters ended without rows: the data do not ask "
            "for so many (latent='variational' lets clusters merge).",
        )
    elif empty:
        yield (
            DeadClusterWarning,
            f"{empty} of {settings.n_clusters} clusters ended without rows; fewer clusters "
            "(n_clusters) or more starts (start__n_init) may suit the data, or a stronger prior "
            "(em__prior_strength).",
        )
    if result.predictor.jitter > max(settings.em.jitter, _HARMLESS_JITTER):
        yield (
            JitterWarning,
            "A kernel matrix was close to singular: its jitter was raised from "
            f"{settings.em.jitter:g} to {result.predictor.jitter:g}. Fewer inducing points "
            "(n_inducing) may help.",
        )
    rounds = len(fit.history)
    if fit.interrupted:
        yield (
            ConvergenceWarning,
            f"Learning was interrupted: the model is that of the last finished round, {rounds}.",
        )
    elif fit.broke_off:
        yield (
            ConvergenceWarning,
            f"Round {rounds + 1} gave numbers that are not finite; the model is that of round "
            f"{rounds}.",
        )
    elif settings.tol > 0 and not fit.converged and rounds == settings.max_iter:
        yield (
            ConvergenceWarning,
            f"The bound was still rising after {rounds} rounds: raise max_iter, or tol if that "
            "is good enough.",
        )
