"""Why values are outside a domain, where that is a slip of writing: capitals, spaces, decimal commas.

Only numbers of records leave the engine, and only whether there are any is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hdmm_bf.data.histogram.request import Reading
from hdmm_bf.data.histogram.tables import Table

_DECIMAL_COMMA = r"^\s*[+-]?[0-9.]*,[0-9]+\s*$"


def hints(table: Table, reading: Reading) -> str:
    """Return a sentence on what some values of a column have that a label, or a number, has not; empty if none has."""
    if reading.labels is not None:
        alike = "Some differ from a label only in capitals or spaces, which count."
        return alike if _any(table, reading, lambda text: _slip(text, reading.labels or ())) else ""
    if not table.from_text:
        return ""
    comma = "Some have a decimal comma: write a point."
    return comma if _any(table, reading, lambda text: text.str.contains(_DECIMAL_COMMA)) else ""


def _slip(text: Any, labels: tuple[str, ...]) -> Any:
    """Whether text is no label, and is one when spaces around it and capitals are taken away."""
    folded = sorted({label.strip().lower() for label in labels})
    return ~text.is_in(list(labels)) & text.str.strip_chars().str.to_lowercase().is_in(folded)


def _any(table: Table, reading: Reading, test: Any) -> bool:
    """Whether some values of a column, as text, pass a test that runs on the engine; False where it cannot."""
    import narwhals as nw

    as_text = replace(reading, labels=reading.labels or ("",), edges=None)
    try:
        frame = table.select([as_text], {}).select(t=nw.col("r0").cast(nw.String))
        found = frame.filter(test(nw.col("t"))).select(nw.len())
        found = found.collect() if isinstance(found, nw.LazyFrame) else found
        return bool(found.item() > 0)
    except Exception:  # noqa: BLE001  # an engine that cannot say why: the refusal itself does not hang on it
        return False
