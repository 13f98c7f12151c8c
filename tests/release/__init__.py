"""Tests of `hdmm_bf.release`."""
