"""The model: pure functions on arrays, independent of files, output and scikit-learn."""

from sgpmic.model.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
