"""Sentences of the estimator in the words of the command line: options, not parameters."""

from __future__ import annotations

import re

#: The options of ``sgpmic fit`` that set parameters of the estimator.
OPTIONS = {
    "n_clusters": "-k",
    "n_components": "-d",
    "kernel": "--kernel",
    "latent": "--latent",
    "n_inducing": "--inducing",
    "scale": "--scale",
    "max_iter": "--rounds",
    "start__n_init": "--starts",
    "random_state": "--seed",
    "as_published": "--as-published",
}

# What the command line cannot set: advice to do so is left out.
_LEFT_OUT = (
    ", or tol if that is good enough",
    ", or a stronger prior (em__prior_strength)",
    r", or raise the jitter \(em__jitter\) above [^ ]*\d",
)
# And what it sets by another option.
_OTHERWISE = {
    "start__kernel_scale='data'": "--as-published",
    "committee=None": "--no-committee",
}


def in_options(sentence: str) -> str:
    """Return a sentence of the estimator with options for parameters."""
    for words in _LEFT_OUT:
        sentence = re.sub(words if "\\" in words else re.escape(words), "", sentence)
    for words, option in _OTHERWISE.items():
        sentence = sentence.replace(words, option)
    names = "|".join(sorted(OPTIONS, key=len, reverse=True))
    # n_clusters='auto' is -k auto. Words such as kernel and scale are parameters only where a
    # value, or a pair of brackets, says so.
    pattern = rf"(?<![\w-])({names})=(?:'([^']*)'|(\w[\w.]*))"
    sentence = re.sub(pattern, lambda m: f"{OPTIONS[m[1]]} {m[2] or m[3]}", sentence)
    plain = [name for name in OPTIONS if "_" in name]
    for name in sorted(plain, key=len, reverse=True):
        sentence = re.sub(rf"(?<![\w-]){name}\b", OPTIONS[name], sentence)
    # A parameter that must be something: "latent must be one of".
    return re.sub(r"^(kernel|latent|scale) must be", lambda m: f"{OPTIONS[m[1]]} must be", sentence)
