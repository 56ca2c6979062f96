"""Words that stand for a missing cell, for yes and no, and for the levels of a scale."""

from __future__ import annotations

from collections.abc import Sequence

from sgpmic.tables.conversions import MISSING_WORDS
from sgpmic.tables.date_text import FULL_MONTHS, MONTHS

#: What stands for a missing cell in a column of any kind.
MISSING = MISSING_WORDS | {
    *("-", "--", "---", "–", "—", "?", "??", ".", "none", "nil", "<na>", "nat"),
    *("n.a.", "n.a", "#na", "#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?"),
}
#: ... and in a column of numbers or dates: as levels these say something.
MISSING_IN_NUMBERS = MISSING | {
    *("unknown", "missing", "not available", "not applicable", "not known", "undefined"),
    *("no data", "no answer", "tbd", "k.a."),
}

_YES_NO = (
    *(("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("1", "0"), ("on", "off")),
    *(("ja", "nein"), ("j", "n"), ("oui", "non"), ("sí", "no"), ("si", "no"), ("sim", "não")),
    *(("tak", "nie"), ("ja", "nee"), ("ja", "nej")),
)
_YES = frozenset(yes for yes, _ in _YES_NO)
_NO = frozenset(no for _, no in _YES_NO)

#: Scales from low to high; of a scale a column may use any two levels or more.
SCALES: tuple[tuple[str, ...], ...] = (
    ("very low", "low", "medium", "high", "very high"),
    ("none", "very low", "low", "moderate", "high", "very high"),
    ("lowest", "low", "mid", "high", "highest"),
    ("low", "middle", "high"),
    ("low", "med", "high"),
    ("low", "normal", "high"),
    ("low", "average", "high"),
    ("l", "m", "h"),
    ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl"),
    ("tiny", "small", "medium", "large", "huge"),
    ("extra small", "small", "medium", "large", "extra large"),
    ("short", "medium", "long"),
    ("short", "medium", "tall"),
    ("slow", "medium", "fast"),
    ("light", "medium", "heavy"),
    ("young", "middle-aged", "old"),
    ("none", "mild", "moderate", "severe", "critical"),
    ("none", "slight", "moderate", "strong", "extreme"),
    ("minor", "moderate", "major", "critical"),
    ("minimal", "mild", "moderate", "severe"),
    ("weak", "moderate", "strong"),
    ("easy", "medium", "hard"),
    ("beginner", "intermediate", "advanced", "expert"),
    ("novice", "intermediate", "expert"),
    ("junior", "mid", "senior", "lead"),
    ("bad", "poor", "fair", "good", "very good", "excellent", "outstanding"),
    ("very bad", "bad", "ok", "good", "very good"),
    ("very poor", "poor", "fair", "average", "good", "very good", "excellent"),
    ("fair", "good", "very good", "premium", "ideal"),
    ("bronze", "silver", "gold", "platinum", "diamond"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("never", "seldom", "occasionally", "frequently", "always"),
    ("never", "monthly", "weekly", "daily"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    (
        *("strongly disagree", "disagree", "somewhat disagree", "neither agree nor disagree"),
        *("somewhat agree", "agree", "strongly agree"),
    ),
    ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"),
    ("very unlikely", "unlikely", "neutral", "likely", "very likely"),
    ("not at all", "a little", "somewhat", "very", "extremely"),
    ("not important", "slightly important", "important", "very important"),
    ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    tuple(
        f"{i}{'th' if 10 <= i % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(i % 10, 'th')}"
        for i in range(1, 32)
    ),
    ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"),
    ("freshman", "sophomore", "junior", "senior"),
    ("primary", "secondary", "tertiary"),
    ("elementary", "middle school", "high school", "bachelor", "master", "doctorate"),
    ("high school", "bachelor's", "master's", "doctorate"),
    ("high school", "bachelor", "master", "phd"),
    MONTHS,
    FULL_MONTHS,
    ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
)


def key(text: str) -> str:
    """Return what two spellings of one level share: they differ by case or white space only."""
    return " ".join(text.split()).casefold()


def truth_of(text: str) -> float | None:
    """Return 1 for a word for yes, 0 for one for no, None for others."""
    word = key(text)
    return 1.0 if word in _YES else 0.0 if word in _NO else None


def find_scale(keys: Sequence[str]) -> tuple[str, ...] | None:
    """Return levels from low to high where they are those of a known scale, else None.

    Levels may be left out. Letters by themselves mostly name groups: they are a scale where there
    are three or more (sizes, Roman numerals), and grades (``a``, ``b``, ``c``) never are.
    """
    wanted = set(keys)
    if len(wanted) < 2 or (len(wanted) == 2 and any(len(level) < 3 for level in wanted)):
        return None
    for scale in SCALES:
        if wanted <= set(scale):
            return tuple(level for level in scale if level in wanted)
    return None


def is_yes_no(keys: Sequence[str]) -> bool:
    """Return whether all levels are ways of saying yes and no, of one or several spellings."""
    # One whole pair has to be there: "f" beside "m" is no "false".
    found = set(keys)
    return found <= _YES | _NO and any({yes, no} <= found for yes, no in _YES_NO)
