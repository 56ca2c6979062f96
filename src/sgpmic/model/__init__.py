"""The model: pure functions on arrays, which know nothing of files, screens or scikit-learn."""

from sgpmic.model.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
