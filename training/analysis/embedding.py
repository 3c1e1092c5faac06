"""Features in the plane, to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def embed(z: npt.NDArray[np.floating], *, seed: int = 0, perplexity: float = 30.0) -> npt.NDArray[np.float64]:
    """t-SNE of features (n, l), as (n, 2), from a start along their principal axes (van der Maaten and Hinton 2008).

    Neighbourhoods mean something; distances between clusters and their sizes do not.

    Raises:
        ValueError: if there are fewer than three records.
    """
    from sklearn.manifold import TSNE  # noqa: PLC0415 - reports alone need scikit-learn

    if len(z) < 3:
        raise ValueError(f"an embedding takes three records or more, not {len(z)}")
    model = TSNE(init="pca", random_state=seed, perplexity=min(perplexity, (len(z) - 1) / 3))
    return np.asarray(model.fit_transform(np.asarray(z, dtype=np.float64)), dtype=np.float64)
