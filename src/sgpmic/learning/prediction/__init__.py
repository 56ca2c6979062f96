"""Prediction for new rows."""
