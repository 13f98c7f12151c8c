"""Bundles: a fitted strategy as a folder of plain files that anybody can check."""
