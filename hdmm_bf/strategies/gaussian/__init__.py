"""Implicit Gaussian strategies for product domains: four families, and the choice between them.

`choose.fit_product` is the entrance; what it returns, `Found`, is in floating point and not yet scaled to a grid.
"""

from hdmm_bf.strategies.gaussian.choose import FAMILIES, fit_beside_floors, fit_product
from hdmm_bf.strategies.gaussian.sketch import Found, JoinedSketch, Sketch

__all__ = ["FAMILIES", "Found", "JoinedSketch", "Sketch", "fit_beside_floors", "fit_product"]
