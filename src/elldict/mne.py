"""Independent components of EEG and MEG recordings, as an object of MNE-Python that its own tools go on with."""

from elldict._old.mne import fit_ica

__all__ = ["fit_ica"]
