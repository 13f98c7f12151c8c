"""Tests of `hdmm_bf.certificate`."""
