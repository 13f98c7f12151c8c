"""Tests of `hdmm_bf.bundle`."""
