"""Linear algebra without rounding, in rational numbers: slow, and the last word."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Matrix = list[list[Fraction]]


def _rational(values: Any) -> Matrix:
    return [[Fraction(float(x)) for x in row] for row in np.asarray(values)]


def _product(A: Matrix, B: Matrix) -> Matrix:
    columns = list(zip(*B, strict=True))
    return [[sum(map(_times, row, column), Fraction(0)) for column in columns] for row in A]


def _times(a: Fraction, b: Fraction) -> Fraction:
    return a * b


def _solve(A: Matrix, B: Matrix) -> tuple[Matrix, Fraction]:
    """Return A⁻¹B and |A| of a positive definite A by elimination."""
    joined = [[*a, *b] for a, b in zip(A, B, strict=True)]
    determinant = Fraction(1)
    for i, row in enumerate(joined):
        pivot = row[i]
        determinant *= pivot
        joined[i] = [x / pivot for x in row]
        for j in range(len(joined)):
            if j != i:
                factor = joined[j][i]
                joined[j] = [x - factor * y for x, y in zip(joined[j], joined[i], strict=True)]
    return [row[len(A) :] for row in joined], determinant


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator)


def collapsed_term(K_uu: Any, K_uf: Any, Y: Any, beta: float, jitter: float) -> float:
    """Return −P/2 (log|A| − log|K_uu|) + ½ tr(WᵀA⁻¹W) for exactly these floating-point numbers.

    A = K_uu + β K_uf K_fu and W = β K_uf Y, where K_uu has ``jitter`` times the mean of its
    diagonal added to it.
    """
    K, rows, data, b = _rational(K_uu), _rational(K_uf), _rational(Y), Fraction(beta)
    U, P = len(K), len(data[0])
    added = Fraction(jitter) * sum((K[i][i] for i in range(U)), Fraction(0)) / U
    for i in range(U):
        K[i][i] += added
    phi = _product(rows, [list(column) for column in zip(*rows, strict=True)])
    A = [[k + b * p for k, p in zip(*pair, strict=True)] for pair in zip(K, phi, strict=True)]
    W = [[b * w for w in row] for row in _product(rows, data)]
    solution, det_A = _solve(A, W)
    _, det_K = _solve(K, W)
    quadratic = sum(float(solution[i][p] * W[i][p]) for i in range(U) for p in range(P))
    return -0.5 * P * (_log(det_A) - _log(det_K)) + 0.5 * quadratic
