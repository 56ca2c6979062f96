"""Fitting: preprocessing, initialization, optimizers, EM, and the resulting predictor."""
