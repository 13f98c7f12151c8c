"""Tests of `hdmm_bf.parallel`."""
