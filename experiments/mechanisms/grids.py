"""The paper's mechanisms for grids and distance thresholds in several dimensions, as fast transforms.

A grid's edges that point along attribute i lie in slabs, one for each step of i; a range query uses 2d boxes of such
edges. Each slab is measured with the wavelet over the other attributes. The release is x + P A^+ noise: what these
edge strategies publish is the estimate alone, never the noisy edge values, which are private on trees only.
For a threshold policy the domain is cut into cubes: every cell hangs on its cube's last corner (internal edges), and
the corners form a grid (external edges). Noise is added to sums of halves of draws here, not to whole numbers.

Reference: Sections 5.2 and 5.3 of the paper.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.mechanisms.checks import AnyArray, Columns, RealVector, fail, whole_number
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.mechanism import Mechanism, Stage
from experiments.mechanisms.trees import shrunk
from experiments.mechanisms.wavelet import depth, forward, inverse, support
from hdmm_bf.domain import Domain
from hdmm_bf.policy import Policy, h_theta, stretch, threshold


def rows_and_columns(policy: Policy) -> Mechanism:
    """Return the grid mechanism: wavelets over every slab of parallel edges, all with the whole of epsilon.

    Guarantees:
        (epsilon, policy)-private: an edge is in one slab, and moves its coefficients by the noise's sensitivity.
        The noise is that of the strategy `strategies.paper.rows_and_columns`; the number of records stays exact.
    """
    sizes = policy.domain.sizes
    check_grid("rows_and_columns", policy)

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        noisy: RealVector = counts + grid_noise(sizes, epsilon, draw).ravel()
        return noisy

    return Mechanism("Transformed + Privelet", (Stage("slabs of edges", 1.0),), estimate, policy.num_cells)


def check_grid(where: str, policy: Policy) -> None:
    """Refuse a policy that is not a grid."""
    if policy.num_edges != threshold(policy.domain, 1).num_edges or not _is_grid(policy):
        raise fail(where, policy.spec, "is not a grid", "Use policy.threshold(domain, 1).")


def _is_grid(policy: Policy) -> bool:
    """Whether every edge joins two cells that differ by one step in one attribute."""
    ends = [np.stack(np.unravel_index(side, policy.domain.sizes)) for side in policy.edges.T % policy.num_cells]
    return not policy.has_bottom and bool(np.all(np.abs(ends[0] - ends[1]).sum(axis=0) == 1))


def grid_noise(sizes: tuple[int, ...], epsilon: float, draw: Draw) -> AnyArray:
    """Return P A^+ noise over the cells of a grid, where A measures every slab of edges with wavelets."""
    total = np.zeros(sizes)
    for axis, size in enumerate(sizes):
        others = [a for a in range(len(sizes)) if a != axis]
        shape = (*sizes[:axis], size - 1, *sizes[axis + 1 :])
        changed = math.prod(depth(sizes[a]) for a in others)
        if size == 1:
            continue
        edges: AnyArray = draw.laplace(changed / epsilon, math.prod(shape)).reshape(shape)
        for other in others:
            edges = inverse(edges, other)
        before, after = np.moveaxis(total, axis, 0)[:-1], np.moveaxis(total, axis, 0)[1:]
        before += np.moveaxis(edges, axis, 0)
        after -= np.moveaxis(edges, axis, 0)
    return total


def cubes(policy: Policy, *, side: int) -> Mechanism:
    """Return the mechanism for threshold policies: cells hang on the corners of cubes, corners form a grid.

    Args:
        policy: the policy to satisfy; usually policy.threshold(domain, t).
        side: of the cubes, a power of two; the paper takes t divided by the number of attributes.

    Guarantees:
        (epsilon, policy)-private: the spanner's stretch is computed, and its mechanism gets epsilon / stretch.
    """
    width = whole_number("cubes", "side", side, least=1, advice="Use a power of two.")
    if width & (width - 1):
        raise fail("cubes", f"side={side}", "must be a power of two", f"Use {1 << (width.bit_length() - 1)}.")
    domain = policy.domain
    spanner = h_theta(domain, width * domain.num_attributes)

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        noisy: RealVector = counts + cube_noise(domain, width, epsilon, draw).ravel()
        return noisy

    stages = (Stage("internal and external edges", 1.0),)
    inner = Mechanism("H^theta + Privelet", stages, estimate, policy.num_cells)
    return shrunk(inner, stretch(policy, spanner), policy)


def cube_noise(domain: Domain, side: int, epsilon: float, draw: Draw) -> AnyArray:
    """Return P A^+ noise over the cells for the spanner H^theta with cubes of that side."""
    sizes = domain.sizes
    total = np.zeros(sizes)
    corners = [np.minimum(np.arange(0, size, side) + side - 1, size - 1) for size in sizes]
    total[np.ix_(*corners)] += grid_noise(tuple(c.size for c in corners), epsilon, draw)
    if side > 1:
        hanging = internal_noise(sizes, side, epsilon, draw)
        hanging[np.ix_(*corners)] = 0.0
        total += hanging
        for axis in range(len(sizes)):
            hanging = np.add.reduceat(hanging, np.arange(0, sizes[axis], side), axis=axis)
        total[np.ix_(*corners)] -= hanging
    return total


def internal_noise(sizes: tuple[int, ...], side: int, epsilon: float, draw: Draw) -> AnyArray:
    """Return the noise of the internal edges, one for each cell.

    For each attribute the cells are cut into layers of thickness `side`, measured with wavelets within the layer and
    along the other attributes, with epsilon / d. The d estimates are combined by least squares: on sizes padded to
    powers of two all of them are uncorrelated in the wavelet basis, with known variances. Padding is about no cell, so
    leaving it out afterwards keeps the reconstruction exact.
    """
    d = len(sizes)
    padded = tuple(max(side, 1 << (size - 1).bit_length()) for size in sizes)
    combined, precision = np.zeros(padded), np.zeros(padded)
    for axis in range(d):
        changed = depth(side) * math.prod(depth(p) for a, p in enumerate(padded) if a != axis)
        scale = d * changed / epsilon
        noise = _layers(draw.laplace(scale, math.prod(padded)).reshape(padded), axis, side)
        for other in range(d):
            noise = forward(noise, other)
        known = np.minimum(1.0, side / support(padded[axis])) / scale**2
        trust = known.reshape(-1, *(1,) * (d - 1 - axis))
        combined += trust * noise
        precision += trust
    noise = combined / precision
    for axis in range(d):
        noise = inverse(noise, axis)
    return np.asarray(noise[tuple(slice(0, size) for size in sizes)])


def _layers(coefficients: AnyArray, axis: int, side: int) -> AnyArray:
    """Invert the wavelets of layers: within blocks of `side` cells along one axis, over all of the others."""
    for other in range(coefficients.ndim):
        if other != axis:
            coefficients = inverse(coefficients, other)
    shape = coefficients.shape
    blocks = coefficients.reshape(*shape[:axis], -1, side, *shape[axis + 1 :])
    return np.asarray(inverse(blocks, axis + 1).reshape(shape))
