"""HTML report and interactive figures of fitted models; independent of how they are fitted."""

from sgpmic.report.content import RunContent, content_from_model
from sgpmic.report.explanations import profiles
from sgpmic.report.page import render_report

__all__ = ["RunContent", "content_from_model", "profiles", "render_report"]
