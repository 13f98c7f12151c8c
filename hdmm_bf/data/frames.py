"""Columns to a frame of the library that the user works with: pandas, polars or pyarrow."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdmm_bf._checks import fail, nearest

LIBRARIES = ("pandas", "polars", "pyarrow")
_INSTALL = "Install pandas, polars or pyarrow, and narwhals: pip install 'hdmm-bf[data]'."


def frame(columns: Mapping[str, Sequence[Any]], library: str | None = None, *, where: str = "to_frame") -> Any:
    """Return named columns as a frame of a library; by default of the one that is loaded, or else installed.

    Missing cells are null; in pandas, whole numbers beside them stay whole, as Int64.
    """
    chosen: Any = _library(library, where)
    if importlib.util.find_spec("narwhals") is None:
        raise fail(where, "narwhals", "needs the package narwhals", _INSTALL)
    import narwhals as nw

    values = {name: _mixed(cells) if chosen == "pandas" else cells for name, cells in columns.items()}
    return nw.from_dict(values, backend=chosen).to_native()


def _library(library: str | None, where: str) -> str:
    if library is not None and library not in LIBRARIES:
        raise fail(where, f"library={library!r}", "is none that frames are made for", nearest(library, LIBRARIES))
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    if (library or "") not in ("", *installed) or not installed:
        raise fail(where, f"library={library!r}", "is not installed", _INSTALL)
    loaded = [name for name in installed if name in sys.modules]
    return library or next(iter(loaded or installed))


def _mixed(cells: Sequence[Any]) -> Any:
    """Keep whole numbers beside missing cells whole: pandas would turn them into floats."""
    known = [cell for cell in cells if cell is not None]
    if len(known) == len(cells) or not any(isinstance(cell, int) for cell in known):
        return cells
    fitting = all(isinstance(cell, int) and abs(cell) < 2**63 for cell in known)
    return (
        importlib.import_module("pandas").array(list(cells), dtype="Int64")
        if fitting
        else np.array(list(cells), dtype=object)
    )
