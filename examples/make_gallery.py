"""Create the images of docs/gallery: ``make gallery``, or some of them by name.

Faces need ``--faces FOLDER``.
"""

import argparse
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

import cells
import customers
import digits
import faces
import flowers
import million

IMAGES = Path(__file__).parents[1] / "docs" / "gallery" / "images"
EXAMPLES = {
    "flowers": flowers.main,
    "digits": digits.main,
    "cells": cells.main,
    "customers": customers.main,
    "million": million.main,
}


def save(figure: Figure, name: str) -> None:
    """Write an image with a reduced palette, for a small file."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110, facecolor="white")
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(IMAGES / f"{name}.png", optimize=True)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *EXAMPLES], help="all by default")
    parser.add_argument("--faces", metavar="FOLDER", help="where yale_uncropped.csv is")
    options = parser.parse_args()
    plt.switch_backend("agg")
    for name in options.names or EXAMPLES:
        print(f"--- {name}")
        save(EXAMPLES[name](), name)
    if options.faces:
        print("--- faces")
        save(faces.main(*faces.read(options.faces)), "faces")
