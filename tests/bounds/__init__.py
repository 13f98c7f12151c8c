"""Tests of `hdmm_bf.bounds`."""
