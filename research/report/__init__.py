"""Reports from result files: our numbers beside the papers', with spread, cost and differences."""

from research.papers import PaperRow, paper_rows
from research.report.cells import Cell, cells
from research.report.markdown import markdown
from research.report.page import page

__all__ = ["Cell", "PaperRow", "cells", "markdown", "page", "paper_rows"]
