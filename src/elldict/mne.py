"""Independent components of EEG and MEG recordings, as fitted ICA objects of MNE-Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elldict.ica import LpICA
from elldict.samples.base import Array

if TYPE_CHECKING:
    from mne.preprocessing import ICA

__all__ = ["fit_ica"]


def fit_ica(
    inst: Any,
    n_components: int | float | None = None,
    *,
    picks: Any = None,
    start: int | float | None = None,
    stop: int | float | None = None,
    decim: int | None = None,
    reject: dict[str, float] | None = None,
    flat: dict[str, float] | None = None,
    tstep: float = 2.0,
    reject_by_annotation: bool = True,
    noise_cov: Any = None,
    return_model: bool = False,
    **options: Any,
) -> ICA | tuple[ICA, LpICA]:
    """Fit an LpICA to a recording, and return it as a fitted ICA of MNE-Python.

    MNE-Python itself chooses channels and samples, scales the channels and reduces them to principal components, as for
    its own methods; elldict finds the components in that space. Topographies, sources, `find_bads_eog`, `apply` and
    `save` work as usual.

    Parameters
    ----------
    inst : mne.io.BaseRaw or mne.BaseEpochs
        Recording. As for any ICA, it should be high-pass filtered at about 1 Hz.
    n_components : int, float or None, default=None
        Number of principal components that are unmixed, or the fraction of variance that they explain, as for
        :class:`mne.preprocessing.ICA`.
    picks : str, array-like or None, default=None
        Channels. None: all good data channels.
    start, stop : int, float or None, default=None
        First sample and the one after the last, or times in seconds. For continuous recordings only.
    decim : int or None, default=None
        Use every `decim`-th sample.
    reject, flat : dict or None, default=None
        Largest and smallest peak-to-peak amplitude by channel type; other segments are left out. For continuous
        recordings only.
    tstep : float, default=2.0
        Length in seconds of the segments of `reject` and `flat`.
    reject_by_annotation : bool, default=True
        Whether to leave out segments whose annotation begins with 'bad'. For continuous recordings only.
    noise_cov : mne.Covariance or None, default=None
        Noise covariance by which channels are whitened. None: channels are divided by the standard deviation of all
        channels of their type.
    return_model : bool, default=False
        Whether to return the fitted :class:`~elldict.LpICA` as well, for its `atom_error_`.
    **options
        Other parameters of :class:`~elldict.LpICA`, such as ``error_bars=False`` or ``verbose=True``.

    Returns
    -------
    ica : mne.preprocessing.ICA
        Fitted ICA. Components are sorted by decreasing explained variance, as those of the methods of MNE-Python; the
        largest value of each topography is positive.
    model : LpICA
        The estimator, if `return_model` is True. Its components, those named in warnings and the entries of
        `atom_error_` have the same order. Its samples are principal components:
        ``ica.get_sources(inst).get_data().T @ ica.mixing_matrix_.T``.

    See Also
    --------
    elldict.LpICA : The estimator.
    elldict.stability : Components that are reproducible on new data.

    Notes
    -----
    `ica.method` is 'fastica', because MNE-Python knows only the names of its own methods, and `ica.fit_params` has no
    meaning.

    Examples
    --------
    >>> from elldict.mne import fit_ica
    >>> ica = fit_ica(raw, n_components=20)  # doctest: +SKIP
    >>> ica.exclude, scores = ica.find_bads_eog(raw)  # doctest: +SKIP
    >>> cleaned = ica.apply(raw.copy())  # doctest: +SKIP
    """
    try:
        import mne  # noqa: PLC0415  optional
    except ImportError as error:
        raise ImportError("elldict.mne needs MNE-Python: pip install 'mne>=1.9'") from error
    model = LpICA(whiten="unit-variance", **options)
    is_raw = isinstance(inst, mne.io.BaseRaw)
    if not is_raw and not isinstance(inst, mne.BaseEpochs):
        raise TypeError(f"inst is of type {type(inst).__name__}, expected Raw or Epochs of MNE-Python.")
    within: dict[str, Any] = {"start": start, "stop": stop, "reject": reject, "flat": flat}
    if not is_raw and (given := [name for name, value in within.items() if value is not None]):
        raise ValueError(f"{given[0]} is for continuous recordings, found Epochs. Use inst.crop() or inst.drop_bad().")
    within |= {"reject_by_annotation": reject_by_annotation}
    # steps of FastICA are below 2, so that it ends after one iteration without a warning
    once: dict[str, Any] = {"max_iter": 1, "fit_params": {"tol": 1e3}, "random_state": 0}
    ica = mne.preprocessing.ICA(n_components, noise_cov=noise_cov, method="fastica", **once)
    # only its principal components are used; warnings cannot be filtered here, since filters are those of all threads
    ica.fit(inst, picks=picks, decim=decim, tstep=tstep, **within, verbose="error")
    read = read_raw if is_raw else read_epochs
    model.set_params(n_components=ica.n_components_)
    model._sorts_by_variance = True
    model.fit((ica.mixing_matrix_ @ read(ica, inst, decim or 1, within)).T)
    keep_components(ica, model)
    return (ica, model) if return_model else ica


def read_raw(ica: ICA, raw: Any, decim: int, within: dict[str, Any]) -> Array:
    """Read the sources (k, r) of the samples to which an ICA was fitted."""
    omit = "omit" if within["reject_by_annotation"] else None
    sources = ica.get_sources(raw, start=within["start"], stop=within["stop"])
    data = sources.get_data(reject_by_annotation=omit, verbose="error")[:, ::decim]
    dropped = [np.arange(*segment) for segment in getattr(ica, "drop_inds_", ())]
    if dropped:
        data = np.delete(data, np.concatenate(dropped), axis=1)
    return np.asarray(data[:, : ica.n_samples_])  # `reject` leaves out an incomplete segment at the end, too


def read_epochs(ica: ICA, epochs: Any, decim: int, _: dict[str, Any]) -> Array:
    """Read the sources (k, r) of the samples to which an ICA was fitted."""
    return np.concatenate(list(ica.get_sources(epochs).get_data()[:, :, ::decim]), axis=1)


def keep_components(ica: ICA, model: LpICA) -> None:
    """Replace the components of an ICA by those of a model, with signs that make topographies positive."""
    if model.n_components_ < ica.n_components_:
        raise ValueError(
            f"The recording varies in {model.n_components_} of {ica.n_components_} principal components only. "
            f"Set n_components={model.n_components_} or less."
        )
    ica.unmixing_matrix_, ica.mixing_matrix_ = model.unmixing_, model.mixing_
    topographies = ica.get_components()
    signs = np.where(np.max(topographies, axis=0) < np.max(-topographies, axis=0), -1.0, 1.0)
    ica.unmixing_matrix_, ica.mixing_matrix_ = signs[:, None] * model.unmixing_, model.mixing_ * signs
    ica.n_iter_ = model.n_iter_
