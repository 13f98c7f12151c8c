"""Tests of `hdmm_bf.strategies`."""
