"""Bundles: a fitted strategy as a folder of plain files that anybody can check."""

from hdmm_bf.bundle.bundle import Contents, read, write
from hdmm_bf.bundle.checks import BundleError
from hdmm_bf.bundle.files import MANIFEST, SCHEMA

__all__ = ["MANIFEST", "SCHEMA", "BundleError", "Contents", "read", "write"]
