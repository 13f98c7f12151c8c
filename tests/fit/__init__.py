"""Tests of `hdmm_bf.fit`."""
