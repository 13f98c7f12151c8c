"""Strategies for Laplace noise (pure epsilon), found by gradients: one family a file, and the portfolio of them."""
