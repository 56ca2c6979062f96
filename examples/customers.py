"""Customers: numbers, money, categories and dates, with one cell in eight missing.

The table is synthetic: three kinds of customers, and an id, a constant and two uninformative
columns.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC, TableEncoder


def make_customers(n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the table and each customer's kind."""
    rng = np.random.default_rng(0)
    kind = rng.choice(3, size=n_rows, p=[0.5, 0.3, 0.2])
    income = rng.lognormal(np.array([10.1, 10.6, 11.3])[kind], 0.25)
    card = rng.random(n_rows) < np.array([0.2, 0.85, 0.6])[kind]
    channels = np.array(["shop", "web", "phone"])
    table = pd.DataFrame(
        {
            "customer_id": np.arange(10_000, 10_000 + n_rows),
            "age": np.round(rng.normal(np.array([62, 31, 47])[kind], 7)),
            "income": [f"{x:,.0f} €" for x in income],
            "orders a year": rng.poisson(np.array([3, 14, 7])[kind]),
            "mean basket": rng.gamma(8, np.array([4, 3, 14])[kind]).round(2),
            "payment": np.where(card, "card", "cash"),
            "channel": [
                rng.choice(channels, p=[(0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.3, 0.5, 0.2)][k])
                for k in kind
            ],
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
            "newsletter": rng.choice(["yes", "no"], size=n_rows),
            "currency": "EUR",
        }
    )
    gaps = rng.random(table.shape) < 1 / 8
    gaps[:, 0] = False
    return table.mask(gaps), kind


def main(n_rows: int = 600) -> Figure:
    table, kind = make_customers(n_rows)
    encoder = TableEncoder().fit(table)
    for column in encoder.columns_:
        print(f"{column.name:14} {column.kind:9} {column.becomes}")

    features = pd.DataFrame(encoder.transform(table), columns=encoder.get_feature_names_out())
    model = SGPMIC(n_clusters=3, scale="one", random_state=0).fit(features)
    agreement = adjusted_rand_score(kind, model.labels_)
    print(f"agreement with the three kinds, which were not used: {agreement:.2f}")

    model.plot_profiles(features)
    axes = plt.gca()
    share = table.isna().mean(axis=None)
    axes.set_title(f"{n_rows} customers, {100 * share:.0f} % of the cells empty", loc="left")
    return axes.figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600)
    main(parser.parse_args().rows).savefig("customers.png", dpi=110)
