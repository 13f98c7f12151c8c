"""The report: one HTML page, complete in itself, that a data owner can read, print and keep beside the bundle."""

from hdmm_bf.report.statement import statement
from hdmm_bf.report.write import SUFFIXES, render, write_report

__all__ = ["SUFFIXES", "render", "statement", "write_report"]
