"""Mechanisms: the only code that sees data or draws noise."""
