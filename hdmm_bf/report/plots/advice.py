"""Advice as a picture: the error of every noise and policy over epsilon."""

from __future__ import annotations

from hdmm_bf.fit import Advice
from hdmm_bf.report.plots import canvas

_COLOURS = (canvas.BLUE, canvas.VERMILION, canvas.GREEN, canvas.PURPLE, canvas.ORANGE, canvas.GREY)
_LINES = {"gaussian": ("-", "o"), "laplace": ("--", "s"), "norm": (":", "^")}
_LONGEST_NAME = 28


def advice(made: Advice) -> canvas.Figure:
    """Draw the root mean squared error of a count over epsilon: a colour a policy, a kind of line a noise.

    Args:
        made: from `advise`; errors are those of its quick fits.
    """
    epsilons, curves = made.epsilons, made.curves()
    colours = {words.name: _COLOURS[i % len(_COLOURS)] for i, words in enumerate(made.policies)}
    at = "" if made.delta is None else f"Gaussian noise at δ = {made.delta:g}; "
    with canvas.style():
        rows = -(-len(curves) // 2)
        figure = canvas.new_figure("What does privacy cost?", height=3.6 + 0.22 * rows, note=f"{at}quick fits")
        axis = figure.subplots()
        for (policy, noise), errors in curves.items():
            line, mark = _LINES[noise]
            label = f"{canvas.shortened(policy, _LONGEST_NAME)}, {noise}"
            axis.plot(epsilons, errors, line, color=colours[policy], marker=mark, markersize=4, label=label)
        axis.axvline(made.epsilon, color=canvas.GREY, linewidth=0.8, zorder=0)
        if all(error > 0 for errors in curves.values() for error in errors):
            axis.set_yscale("log")
        axis.set_xscale("log")
        axis.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        axis.minorticks_off()
        axis.set_xlabel("epsilon")
        axis.set_ylabel("root mean squared error (records)")
        axis.grid(axis="y", color="#e5e5e5")
        canvas.legend(figure)
        return figure
