"""The paper's and the classical mechanisms as strategies: what a search must not fall behind."""
