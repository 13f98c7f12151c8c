"""Files of blocks that join attributes: weights, rows and gains of each, as whole numbers."""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import InputError, fail, fits
from hdmm_bf._types import AnyArray
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.arrays import array, whole
from hdmm_bf.bundle.checks import BLOCKS, WRITE_AGAIN
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer

_MOST_JOINED = 64
_MOST_LAYERS, _MOST_GAINS = 64, 2**8
_MOST_BITS = 62


def joined_arrays(blocks: tuple[JoinedBlock, ...]) -> dict[str, AnyArray]:
    """Return the arrays of joined blocks; none where there are none."""
    if not blocks:
        return {}
    arrays: dict[str, AnyArray] = {"joined": np.array(len(blocks))}
    for j, block in enumerate(blocks):
        arrays |= {f"j{j}_axes": _attributes(block.axes), f"j{j}_hides": _attributes(block.hides)}
        arrays[f"j{j}_places"] = np.array([block.bits, block.gain_bits, len(block.layers)], dtype=np.int64)
        arrays[f"j{j}_weights"] = block.weights
        for number, layer in enumerate(block.layers):
            name = f"j{j}_l{number}"
            arrays |= {f"{name}_keeps": _attributes(layer.keeps), f"{name}_rows": layer.rows}
            arrays |= _gain_arrays(name, layer.gains)
        arrays |= _gain_arrays(f"j{j}_t", block.totals)
    return arrays


def _attributes(those: tuple[int, ...]) -> AnyArray:
    return np.array(those, dtype=np.int64)


def _gain_arrays(name: str, gains: tuple[Gains, ...]) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {f"{name}_gains": np.array(len(gains))}
    for g, own in enumerate(gains):
        arrays |= {f"{name}_g{g}_keeps": _attributes(own.keeps), f"{name}_g{g}": own.integers}
    return arrays


def stored_joined(arrays: dict[str, AnyArray], product: ProductProblem) -> tuple[JoinedBlock, ...]:
    """Return the joined blocks that a file holds; what they mean is checked by the certificate."""
    if "joined" not in arrays:
        return ()
    count = whole("joined", arrays["joined"], 1, _MOST_JOINED)
    held = sum(own.size for name, own in arrays.items() if name.startswith("j"))
    fits(BLOCKS, "joined blocks", 24 * held, advice=WRITE_AGAIN)
    return tuple(_stored(arrays, j, product) for j in range(count))


def _stored(arrays: dict[str, AnyArray], j: int, product: ProductProblem) -> JoinedBlock:
    axes, hides = (_read_attributes(arrays, f"j{j}_{name}", product) for name in ("axes", "hides"))
    n = math.prod(product.sizes[i] for i in axes)
    places = array(arrays, f"j{j}_places", "i", 1)
    if places.shape != (3,) or not np.all((places >= 0) & (places <= max(_MOST_LAYERS, _MOST_BITS))):
        raise _unfit(f"j{j}_places")
    bits, gain_bits, layers = places.tolist()
    weights = _read_numbers(arrays, f"j{j}_weights", 1)
    if not axes or weights.shape != (n,):
        raise _unfit(f"j{j}_weights")
    read = []
    for number in range(layers):
        name = f"j{j}_l{number}"
        rows = _read_numbers(arrays, f"{name}_rows", 2)
        if rows.shape[1:] != (n,):
            raise _unfit(f"{name}_rows")
        keeps = _read_attributes(arrays, f"{name}_keeps", product)
        read.append(Layer(keeps, rows, _read_gains(arrays, name, product, n)))
    return JoinedBlock(axes, hides, weights, tuple(read), _read_gains(arrays, f"j{j}_t", product, n), bits, gain_bits)


def _read_gains(arrays: dict[str, AnyArray], name: str, product: ProductProblem, n: int) -> tuple[Gains, ...]:
    count, found = whole(f"{name}_gains", arrays.get(f"{name}_gains"), 0, _MOST_GAINS), []
    for g in range(count):
        integers = _read_numbers(arrays, f"{name}_g{g}", 2)
        if len(integers) != n:
            raise _unfit(f"{name}_g{g}")
        found.append(Gains(_read_attributes(arrays, f"{name}_g{g}_keeps", product), integers))
    return tuple(found)


def _read_attributes(arrays: dict[str, AnyArray], name: str, product: ProductProblem) -> tuple[int, ...]:
    held, d = array(arrays, name, "i", 1), len(product.sizes)
    if held.size > d or not np.all((held >= 0) & (held < d)):
        raise _unfit(name)
    return tuple(held.tolist())


def _read_numbers(arrays: dict[str, AnyArray], name: str, ndim: int) -> AnyArray:
    held = array(arrays, name, "i", ndim)
    if not checks.in_range(held):
        raise _unfit(name)
    return held.astype(np.int64)


def _unfit(name: str) -> InputError:
    return fail(BLOCKS, f"{name} of a joined block", "does not fit the domain", WRITE_AGAIN)
