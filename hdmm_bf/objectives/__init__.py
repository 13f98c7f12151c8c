"""What searches minimise: differentiable losses, the one minimiser of smooth losses, and when it must end.

`losses` needs JAX, which takes a second and 200 MB to load: import it where a descent begins, not at the top of a file.
"""
