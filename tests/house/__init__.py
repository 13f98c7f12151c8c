"""Rules for the whole house, its pages, and sweeps over all its doors."""
