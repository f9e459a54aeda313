"""Files as scanners and fastMRI write them, for tests: HDF5 volumes of annotated names and what to compare."""

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="h5py is not installed (extra `prep`)")

# The volumes of tests/data/fastmri_plus/cut with the slices that they need; two more than that for the knees' last.
CUT = {
    "file_brain_AXT1_202_2020089": ("multicoil_train", 16),
    "file_brain_AXFLAIR_203_6000890": ("multicoil_val", 2),
    "file_brain_AXFLAIR_202_6000476": ("multicoil_val", 16),
    "file_brain_AXT1POST_200_6002373": ("multicoil_train", 14),
    "file1001706": ("multicoil_train", 35),
    "file1002097": ("multicoil_train", 36),
    "file1000990": ("multicoil_val", 40),
    "file1001950": ("multicoil_val", 30),
}


def write_h5(path, values, dataset="reconstruction_rss"):
    """A file of fastMRI's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file[dataset] = np.asarray(values)
        file["ismrmrd_header"] = "<ismrmrdHeader/>"
        file.attrs["patient_id"] = "0f3a"
    return path


def write_cut(folder, size=(9, 12)):
    """All volumes of the cut, noise that differs from volume to volume; returns name -> values."""
    volumes = {}
    for seed, (name, (part, slices)) in enumerate(CUT.items()):
        volumes[name] = np.random.default_rng(seed).normal(1, 1, (slices, *size)).astype(np.float32)
        organ = "brain" if "brain" in name else "knee"
        write_h5(folder / f"{organ}_batch_0/{part}/{name}.h5", volumes[name])
    return volumes


def tree(folder):
    """Relative path -> bytes of all files but the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
