"""Tests of the noise of tree norms."""
