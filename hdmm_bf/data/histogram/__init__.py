"""From a table of records to counts over the declared cells of a domain, counted where the table lives."""

from hdmm_bf.data.histogram.counting import histogram, records
from hdmm_bf.data.histogram.request import Outside

__all__ = ["Outside", "histogram", "records"]
