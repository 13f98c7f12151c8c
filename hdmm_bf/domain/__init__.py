"""The cells: named attributes with sizes, labels, intervals and units, and how they are numbered."""

from hdmm_bf.domain.attributes import Attribute, AttributeLike, bins, of, whole
from hdmm_bf.domain.domain import Domain, DomainLike, as_domain, parse, written_on

__all__ = [
    "Attribute",
    "AttributeLike",
    "Domain",
    "DomainLike",
    "as_domain",
    "bins",
    "of",
    "parse",
    "whole",
    "written_on",
]
