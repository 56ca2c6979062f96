"""The options of the commands, and how their words become values."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sgpmic.cli.console import fail

number = partial(Option, metavar="NUMBER", min=1)
word = partial(Option, metavar="WORD")
OutFolder = Annotated[Path, Option(metavar="FOLDER", help="Folder for the results.")]
Seed = Annotated[int, number(min=0, help="Random seed.")]
Device = Annotated[str, word(help="cpu, gpu, or auto: a GPU where JAX finds one.")]
Force = Annotated[bool, Option("--force", help="Replace the results of an earlier run.")]
RunPath = Annotated[Path, Argument(metavar="RUN", help="Folder that sgpmic fit wrote.")]

#: The options of ``sgpmic fit`` that set parameters of the estimator.
OPTIONS = {
    "n_clusters": "--clusters",
    "n_components": "--dimensions",
    "kernel": "--kernel",
    "latent": "--latent",
    "n_inducing": "--inducing",
    "scale": "--scale",
    "max_iter": "--rounds",
    "start__n_init": "--starts",
    "start__kernel_scale='data'": "--as-published",
    "random_state": "--seed",
    "as_published": "--as-published",
}


def in_options(said: Exception | Warning | str) -> str:
    """Return a message of the estimator with options in place of parameters that have one."""
    from sgpmic.exceptions import Advice, InvalidParameterError

    if isinstance(said, InvalidParameterError):
        return OPTIONS.get(said.parameter, said.parameter) + said.problem
    message = said.args[0] if isinstance(said, Exception) and said.args else said
    if not isinstance(message, Advice):
        return str(said)
    options = []
    for parameter in message.parameters:
        name, _, value = parameter.partition("=")
        value = value.strip("'")
        if option := OPTIONS.get(parameter):
            options.append(option)
        elif option := OPTIONS.get(name):
            options.append(f"{option} {value}" if value else option)
    return f"{message.sentence} ({', '.join(options)})." if options else f"{message.sentence}."


def clusters(words: str) -> int | str:
    """Read ``-k``: a whole number, or auto."""
    if words != "auto" and (not words.isdecimal() or int(words) < 1):
        raise fail(f"-k {words}: give a whole number of clusters (3), or auto.")
    return words if words == "auto" else int(words)


def dimensions(words: str) -> int | float | str:
    """Read ``-d``: a whole number, a share of variance, or auto."""
    if words == "auto":
        return words
    if words.lstrip("-").isdecimal():
        return int(words)
    with suppress(ValueError):
        if 0.0 < float(words) < 1.0:
            return float(words)
    raise fail(
        f"-d {words}: give a whole number of dimensions (2), a share of variance (0.95), or auto."
    )


def name_device(name: str) -> None:
    """Tell JAX, which must not be imported yet, where to compute."""
    platforms = {"auto": "", "cpu": "cpu", "gpu": "cuda"}
    if name not in platforms:
        raise fail(f"--device {name}: choose auto, cpu or gpu.")
    if name != "auto":
        os.environ["JAX_PLATFORMS"] = platforms[name]


def check_device(name: str) -> None:
    """End the command if a GPU is asked for and there is none.

    This starts JAX, which a process of a job must not do before it has joined the others.
    """
    if name == "gpu":
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError):  # which of them depends on JAX's version
            raise fail(
                "--device gpu: JAX finds no GPU; run pip install 'sgpmic[cuda]' on a machine that "
                "has one, or use --device cpu."
            ) from None
