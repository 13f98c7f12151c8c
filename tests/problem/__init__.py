"""Tests of `hdmm_bf.problem`."""
