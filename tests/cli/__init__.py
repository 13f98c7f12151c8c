"""Tests of `hdmm_bf.cli`."""
