"""Tests of hdmm_bf; oracles and instances are shared, the code under test is not."""
