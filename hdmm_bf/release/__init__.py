"""Release: the only code where data meet noise, and what is needed around it."""

from hdmm_bf.release import (  # they register their records
    groups,  # noqa: F401
    matrices,  # noqa: F401
    noise_sums,  # noqa: F401
    norms,  # noqa: F401
    products,  # noqa: F401
    tree_sums,  # noqa: F401
)
