"""The browser is shared by all tests of a file."""

from tests.report.browser import driver, visit

__all__ = ["driver", "visit"]
