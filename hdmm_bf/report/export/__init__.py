"""Exporting: strategies, reconstructions and releases as files for other software."""

from hdmm_bf.report.export.csvw import metadata_file
from hdmm_bf.report.export.excel import check_rows
from hdmm_bf.report.export.files import check_apart, check_target, write_file
from hdmm_bf.report.export.matrices import FORMATS, write_matrix
from hdmm_bf.report.export.releases import SUFFIXES, write_answers, write_estimate

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "check_apart",
    "check_rows",
    "check_target",
    "metadata_file",
    "write_answers",
    "write_estimate",
    "write_file",
    "write_matrix",
]
