"""What the test for clusters has found, as it is kept with a model and told to people."""

from __future__ import annotations

from dataclasses import dataclass

#: The chance of calling noise clusters that is accepted.
LEVEL = 0.05
#: Tables of noise of each kind, at most.
DRAWS = 79
#: The p-value above which noise looks the same, and one cluster is the answer. The test is strict:
#: several kinds of noise have to be ruled out, and one in twenty tables of noise has less than 0.2.
IMPLAUSIBLE = 0.3


@dataclass(frozen=True)
class Support:
    """Whether a table has clusters, and how sure that is.

    Attributes
    ----------
    statistic : float
        How far the table stands out from noise, in standard deviations of the noise.
    p_value : float
        How often noise would stand out as far, for the kind of noise that does so most often.
    part : str
        What stood out most.
    noise : str
        The kind of noise that came nearest.
    draws : int
        Tables of that noise. Where the p-value is smaller than so many can show, it was
        extrapolated from a clear lead: 'p < 0.05' is all that was simulated.
    """

    statistic: float
    p_value: float
    part: str
    noise: str
    draws: int = DRAWS

    @property
    def supported(self) -> bool:
        """Whether the p-value is at most 0.05."""
        return self.p_value <= LEVEL

    def sentence(self) -> str:
        """Return the outcome in a sentence for people."""
        if not self.noise:
            return f"Whether there are clusters cannot be told: {self.part}."
        p = f"p = {self.p_value:.2g}"
        if self.p_value * (self.draws + 1) < 1.0 - 1e-9:
            p = f"p < {LEVEL:g}"
        p += f" ({self.draws} noise tables)"
        if self.supported:
            return (
                f"There are clusters: {self.part}, more than in noise without clusters "
                f"({self.noise}): {p}."
            )
        alike = "looks the same" if self.p_value > IMPLAUSIBLE else "comes near"
        return f"There may be no clusters: noise without any ({self.noise}) {alike}: {p}."
