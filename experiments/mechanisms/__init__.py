"""The paper's own mechanisms, with floating-point noise: for experiments, never for publication."""
