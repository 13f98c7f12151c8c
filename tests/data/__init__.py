"""Tests of `hdmm_bf.data`."""
