"""Tests of `hdmm_bf.policy`."""
