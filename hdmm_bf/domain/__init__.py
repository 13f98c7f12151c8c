"""The cells: named attributes with sizes and labels, and how they are numbered."""

from hdmm_bf.domain.domain import Domain, DomainLike, as_domain, parse, written_on

__all__ = ["Domain", "DomainLike", "as_domain", "parse", "written_on"]
