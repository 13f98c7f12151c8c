"""float64 inside, the caller's JAX configuration untouched, both ways."""

import subprocess
import sys

import pytest

SCRIPT = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", {caller})
from hdmm_bf._linalg import in_float64

@in_float64
def inside():
    return jnp.ones(3) / 3

@in_float64
def fails():
    raise KeyError("on purpose")

assert inside().dtype == jnp.float64, inside().dtype
try:
    fails()
except KeyError:
    pass
assert jax.config.jax_enable_x64 is {caller}
assert jnp.ones(3).dtype == (jnp.float64 if {caller} else jnp.float32)
print("kept")
"""


@pytest.mark.parametrize("caller", [True, False])
def test_float64_inside_and_the_callers_setting_kept(caller):
    """Quotes in_float64: the flag is the same before and after, also when the function raises."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(caller=caller)], capture_output=True, text=True, check=False
    )
    assert run.stdout == "kept\n", run.stderr


def test_importing_the_package_loads_nothing_heavy():
    script = "import sys, hdmm_bf; print(sorted(m for m in ('jax', 'scipy', 'networkx', 'numpy') if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_every_public_name_resolves():
    import hdmm_bf

    for name in hdmm_bf.__all__:
        assert getattr(hdmm_bf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'polcy'"):
        _ = hdmm_bf.polcy
    assert dir(hdmm_bf) == sorted(hdmm_bf.__all__)
