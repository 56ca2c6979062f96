"""Has a table clusters at all? A test against noise that looks like the table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sgpmic._types import Floats
from sgpmic.committee import reference_noise as noise
from sgpmic.committee.outcome import DRAWS, Support
from sgpmic.committee.separation import DIP_VALUES, PARTS, separations

#: Fewer rows show nothing either way.
FEWEST_ROWS = 20
#: Principal components that are kept, at most, and the share of variance that is enough.
MOST_AXES, VARIANCE = 50, 0.95
#: Tables of noise of each kind, at a first look.
FIRST_DRAWS = 19
#: Parts that stand out by less than this less, in standard deviations, stand out as far.
_AS_FAR = 0.05
#: After the first look: p-values above this end the test, and so does a lead of this many spreads.
HOPELESS, CLEAR = 0.18, 5.0


def _turned(Z: Floats) -> Floats:
    """Return rows centered and in their own main axes, widest first."""
    Z = Z - Z.mean(axis=0)
    return Z @ np.linalg.eigh(Z.T @ Z)[1][:, ::-1]


def main_axes(Y: Floats) -> tuple[Floats, int]:
    """Return the main axes of centered rows, as columns, and how many have 95 % of the variance."""
    _, s, axes = np.linalg.svd(Y, full_matrices=False)
    share = np.cumsum(s**2) / max(np.sum(s**2), 1e-300)
    most = max(1, min(MOST_AXES, len(Y) // 3, int(np.sum(s > 1e-6 * s[0]))))
    return axes[:most].T, min(int(np.searchsorted(share, VARIANCE)) + 1, most)


def _margin(n_rows: int, n_axes: int) -> Floats:
    """Return by how much each of the figures has to be larger than that of noise.

    This covers what fitted noise misses of the true one, such as the corners of a slanted box,
    and there is more to miss in more dimensions: two gains in nats, the log of a ratio of
    distances, a dip.
    """
    gain = float(np.clip(0.25 * (n_axes - 2), 0.0, 3.0))
    return np.array([gain, gain, 0.1, 0.05 / np.sqrt(min(n_rows, DIP_VALUES))])


def _compare(figures: Floats) -> tuple[float, float, int]:
    """Return lead and p-value of the first row of figures among all, and the part that leads.

    The table and the noise are treated alike, the table's figures enter mean and spread too: so
    the p-value is exact where the table is such noise.
    """
    standard = (figures - figures.mean(axis=0)) / (figures.std(axis=0) + 1e-12)
    largest = standard.max(axis=1)
    lead = (largest[0] - largest[1:].mean()) / (largest[1:].std() + 1e-12)
    p_value = float(np.mean(largest >= largest[0] - 1e-12))
    # Of parts that stand out as far, the first, on any machine.
    leading = standard[0] > standard[0].max() - _AS_FAR
    return float(lead), p_value, int(np.argmax(leading))


def structure_support(
    Y: Floats,
    random_state: int = 0,
    *,
    max_rows: int = 1000,
    max_features: int = 4000,
    mixed: noise.MixedTable | None = None,
) -> Support:
    """Test whether a table has clusters, against several kinds of noise fitted to it.

    The figures of ``separation.py`` are compared with those of noise of each kind in
    ``reference_noise.py``; the largest of the p-values counts.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
        Rows, scaled.
    random_state : int
    max_rows, max_features : int
        More than these are represented by a sample.
    mixed : MixedTable or None
        The table with its categories, of which ``Y`` has the factors.
    """
    Y = np.asarray(Y, np.float64)
    if len(Y) < FEWEST_ROWS:
        return Support(0.0, 1.0, f"{len(Y)} rows are too few", "")
    rng = np.random.default_rng(random_state)
    Y = Y[np.lexsort(Y.T)]  # the same rows in another order: the same answer
    Y = Y[rng.permutation(len(Y))[:max_rows]]
    Y = Y - Y.mean(axis=0)
    Y = Y[:, Y.std(axis=0) > 0]
    if Y.shape[1] > max_features:
        Y = Y[:, np.sort(rng.permutation(Y.shape[1])[:max_features])]
    if Y.shape[1] == 0:
        return Support(0.0, 1.0, "all rows are equal", "")
    all_axes, kept = main_axes(Y)
    axes = all_axes[:, :kept]
    Z = Y @ axes
    # Fitted only where the kinds before leave the question open.
    scales = noise.axis_scales(Z, rng)

    def scaled(draw: noise.Draw) -> noise.Draw:
        return lambda rng: draw(rng) * scales

    kinds: dict[str, Callable[[], noise.Draw]] = {
        "rows with the same features and correlations": lambda: scaled(
            noise.with_marginals(Y, axes)
        ),
        "Gaussian rows with the same covariance": lambda: scaled(noise.gaussian(Z)),
        "an elliptical cloud": lambda: scaled(noise.elliptical(Z)),
        "a mix of independent components": lambda: scaled(noise.independent(Y @ all_axes, kept)),
    }
    if mixed is not None:
        like_columns = "rows with the same columns, categories among them"
        kinds = {like_columns: lambda: noise.mixed(mixed, kept), **kinds}
    draws: dict[str, noise.Draw] = {}
    figures = dict.fromkeys(kinds, separations(_turned(Z)[None]) - _margin(*Z.shape))
    outcomes: dict[str, Support] = {}
    for total in (FIRST_DRAWS, DRAWS):
        for kind, fit in kinds.items():
            if kind not in draws:
                draws[kind] = fit()
            if kind in outcomes and outcomes[kind].p_value < 1 / (FIRST_DRAWS + 1):
                continue  # clear after the first look
            missing = total + 1 - len(figures[kind])
            drawn = separations(np.stack([_turned(draws[kind](rng)) for _ in range(missing)]))
            figures[kind] = np.vstack([figures[kind], drawn])
            lead, p_value, part = _compare(figures[kind])
            if p_value <= 1 / (FIRST_DRAWS + 1) and lead > CLEAR:
                p_value = 1 / (DRAWS + 1)
            outcomes[kind] = Support(lead, p_value, PARTS[part], kind, len(figures[kind]) - 1)
            if p_value > HOPELESS:
                return outcomes[kind]
    return max(outcomes.values(), key=lambda outcome: (outcome.p_value, -outcome.statistic))
