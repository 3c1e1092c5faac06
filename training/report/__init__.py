"""Reports from result files: our numbers beside the papers', with their spread, their cost and what differs."""

from training.report.cells import Cell, cells
from training.report.markdown import markdown
from training.report.page import page
from training.report.papers import PaperRow, paper_rows

__all__ = ["Cell", "PaperRow", "cells", "markdown", "page", "paper_rows"]
