"""Tests of `hdmm_bf.matrix`."""
