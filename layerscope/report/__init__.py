"""The report: frames and figures as one HTML file that needs nothing else."""

from __future__ import annotations

from layerscope.report.commands import Files
from layerscope.report.of_cache import write_cache_report, write_figures
from layerscope.report.page import report_file, write_report

__all__ = ["Files", "report_file", "write_cache_report", "write_figures", "write_report"]
