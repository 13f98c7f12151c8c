"""Tests of `hdmm_bf.objectives`."""
