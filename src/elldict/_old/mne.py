"""Independent components of EEG and MEG recordings, as an object of MNE-Python that its own tools go on with."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.estimation import signs_of_largest
from elldict._old.ica import LpICA

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
    reject_by_annotation: bool = True,
    noise_cov: Any = None,
    random_state: int | None = 0,
    return_model: bool = False,
    **options: Any,
) -> ICA | tuple[ICA, LpICA]:
    """Fit an LpICA to a recording, and return it as a fitted ICA of MNE-Python.

    Channels are chosen, scaled and reduced to principal components by MNE itself, exactly as for its own methods;
    elldict finds the components in that space. Topographies, sources, `find_bads_eog`, `apply` and `save` work as
    usual.

    Parameters
    ----------
    inst : mne.io.BaseRaw or mne.BaseEpochs
        The recording. As for any ICA, it should be high-pass filtered at about 1 Hz.
    n_components : int, float or None, default=None
        Number of principal components that are unmixed, or the share of variance that they explain, as for
        :class:`mne.preprocessing.ICA`.
    picks : str, array-like or None, default=None
        Channels; None is all good data channels.
    start, stop : int, float or None, default=None
        First sample and the one after the last, or times in seconds; for continuous recordings only.
    decim : int or None, default=None
        Use every `decim`-th sample.
    reject_by_annotation : bool, default=True
        Leave out segments whose annotation begins with 'bad'; for continuous recordings only.
    noise_cov : mne.Covariance or None, default=None
        Noise covariance for the scaling of channels; None scales each type of channels by its standard deviation.
    random_state : int or None, default=0
        Seed of the random starts.
    return_model : bool, default=False
        Also return the fitted :class:`~elldict.LpICA`, whose `atom_error_` says how sure each component is, in their
        order. Its samples are the principal components of MNE:
        ``ica.get_sources(raw).get_data().T @ ica.mixing_matrix_.T``.
    **options
        Further parameters of :class:`~elldict.LpICA`, such as `n_init`, `halves` or `verbose`.

    Returns
    -------
    mne.preprocessing.ICA
        Fitted. Components come by decreasing explained variance, as those of MNE's own methods: an order that is the
        same for every seed if the components are. The model has it too, so that the numbers in warnings, and the
        entries of `atom_error_`, are those of MNE. The largest value of each topography is positive. With
        `return_model` a pair of it and the model.

    See Also
    --------
    elldict.LpICA : The estimator.
    elldict.stability : Which components other samples would give again.

    Notes
    -----
    `ica.method` is 'fastica', since MNE accepts the names of its own methods only; `ica.fit_params` is of no meaning.

    Examples
    --------
    >>> from elldict.mne import fit_ica
    >>> ica = fit_ica(raw, n_components=20)  # doctest: +SKIP
    >>> ica.exclude, scores = ica.find_bads_eog(raw)  # doctest: +SKIP
    >>> cleaned = ica.apply(raw.copy())  # doctest: +SKIP
    """
    _check_options(options)
    mne = _import_mne()
    continuous = isinstance(inst, mne.io.BaseRaw)
    if not continuous and not isinstance(inst, mne.BaseEpochs):
        raise TypeError(f"inst is of type {type(inst).__name__}, expected a Raw or an Epochs of MNE-Python.")
    if not continuous and (start is not None or stop is not None):
        raise ValueError("start and stop are for continuous recordings, found Epochs. Crop these with inst.crop().")
    ica = mne.preprocessing.ICA(
        n_components, noise_cov=noise_cov, random_state=0, method="fastica", max_iter=1, verbose="error"
    )
    within: dict[str, Any] = {"decim": decim, "picks": picks}
    if continuous:
        within |= {"start": start, "stop": stop, "reject_by_annotation": reject_by_annotation}
    with warnings.catch_warnings():
        # its principal components are wanted, not the one iteration that it has to do
        warnings.filterwarnings("ignore", message=".*(converge|iterations).*")
        ica.fit(inst, verbose="error", **within)
    coordinates = _project(ica, inst, within)
    model = LpICA(coordinates.shape[1], random_state=random_state, **options)
    model._order = "variance"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(coordinates)
    for warning in caught:  # at the line of the user
        warnings.warn(warning.message, stacklevel=2)
    _keep_components(ica, model)
    return (ica, model) if return_model else ica


def _import_mne() -> Any:
    try:
        import mne  # noqa: PLC0415  optional
    except ImportError as error:
        raise ImportError("elldict.mne needs MNE-Python: pip install '.[mne]' in a clone of elldict") from error
    return mne


def _check_options(options: dict[str, Any]) -> None:
    """Refuse what is not a parameter of LpICA, or would change what MNE's sources are."""
    known = set(LpICA().get_params()) - {"n_components", "random_state", "whiten"}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(
            f"fit_ica takes no {unknown[0]}: expected one of its own parameters, or {', '.join(sorted(known))}."
        )


def _project(ica: ICA, inst: Any, within: dict[str, Any]) -> NDArray[np.float64]:
    """Coordinates (r, k) of the samples of the fit in the principal components: its first sources, mixed again."""
    if "start" in within:
        sources = ica.get_sources(inst, start=within["start"], stop=within["stop"])
        data = sources.get_data(
            reject_by_annotation="omit" if within["reject_by_annotation"] else None, verbose="error"
        )
        data = data[:, :: within["decim"] or 1]
    else:
        data = ica.get_sources(inst).get_data()[:, :, :: within["decim"] or 1]
        data = np.concatenate(list(data), axis=1)
    return np.asarray((ica.mixing_matrix_ @ data).T)


def _keep_components(ica: ICA, model: LpICA) -> None:
    """Put the components of the model in the place of those that MNE has found."""
    n_found, n_sought = model.n_components_, ica.n_components_
    if n_found < n_sought:
        raise ValueError(
            f"The recording varies in {n_found} of the {n_sought} principal components that were asked for. "
            f"Set n_components={n_found} or less."
        )
    ica.unmixing_matrix_, ica.mixing_matrix_ = model.unmixing_, model.mixing_
    signs = signs_of_largest(ica.get_components().T)
    ica.unmixing_matrix_, ica.mixing_matrix_ = signs * model.unmixing_, model.mixing_ * signs.T
    ica.n_iter_ = model.n_iter_
