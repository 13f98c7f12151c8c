"""Tests of `hdmm_bf.domain`."""
