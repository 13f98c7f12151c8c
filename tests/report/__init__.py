"""Tests of `hdmm_bf.report`."""
