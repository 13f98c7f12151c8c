"""Strategies as they ship: plain frozen records of integers, so that what was checked is what runs.

What can be done with one is a function with one implementation per record, registered by the layer that owns it: the
certificate registers `exact_sensitivity` and `certify`, the release `reconstruction`, the bundle `encode`.
"""

from __future__ import annotations

from typing import TypeAlias

from hdmm_bf.strategies.records.blocks import AnyTensor, Block, NoiseSum, ProductStrategy
from hdmm_bf.strategies.records.joined import Gains, JoinedBlock, Layer
from hdmm_bf.strategies.records.matrices import CellStrategy, EdgeStrategy, Kind, MatrixStrategy
from hdmm_bf.strategies.records.trees import GroupedTree, TreeNorm, TreePart, TreeSum

__all__ = [
    "BY_FACTORS",
    "AnyTensor",
    "Block",
    "CellStrategy",
    "EdgeStrategy",
    "Gains",
    "GroupedTree",
    "JoinedBlock",
    "Kind",
    "Layer",
    "MatrixStrategy",
    "NoiseSum",
    "ProductStrategy",
    "Strategy",
    "TreeNorm",
    "TreePart",
    "TreeSum",
]

Strategy: TypeAlias = MatrixStrategy | ProductStrategy | NoiseSum | TreeNorm | GroupedTree | TreeSum
"""Any strategy that ships: one of the records of this folder."""

BY_FACTORS = (ProductStrategy.kind, NoiseSum.kind, GroupedTree.kind, TreeSum.kind)
"""Kinds of strategies that are kept by their factors."""
