"""Bytes of NumPy files: headers that promise anything, arrays as saved, archives of them."""

import io
import zipfile

import numpy as np


def npy(shape, kind="<f8"):
    """Header of a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
    return out.getvalue()


def saved(save, *args, **kwargs):
    out = io.BytesIO()
    save(out, *args, **kwargs)
    return out.getvalue()


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()
