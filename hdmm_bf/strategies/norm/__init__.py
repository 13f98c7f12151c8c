"""Families of tree norms: noise on the cells whose norm is the earth mover's distance on a weighted tree."""
