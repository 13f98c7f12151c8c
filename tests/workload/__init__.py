"""Tests of `hdmm_bf.workload`."""
