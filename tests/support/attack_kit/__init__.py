"""An attack on bundles from outside: an oracle of the exact privacy loss, a sampler that leaves marks, a forger."""
