"""A head in chunks: what a wave lacked of the workspace that its rows can take there.

A head that projects a chunk of rows at a time takes a workspace of buffers that grow with the rows of a pass until the
pass fills a chunk. How many rows a pass has depends on what is wanted of them (labels of no interest are left out), and
no signature says that. So a wave teaches its peak and what it lacked of a pass over all its rows. Whatever other
choice of rows a wave of these rows makes, it is covered (`proofs/head`), and since a chunk grows with rows and then no
more, assumption SCALE holds of what is taught as it holds of the rest.
"""

from __future__ import annotations

from pricing.kernel.quantities import maximum, minimum


def chunk_rows(rows: int, chunk: int) -> int:
    """How many rows of a pass are in its workspace at once."""
    return minimum(rows, chunk)


def lacking_bytes(rows: int, projected_rows: int, logit_bytes: int, buffer_bytes: int, vocabulary: int) -> int:
    """An upper bound on the workspace that a pass over `projected_rows` lacked of one over `rows`, both in one chunk.

    logit_bytes: the most that a workspace takes a logit. buffer_bytes: what other waves of the signature may take a
    logit of every row beyond what this one took.
    """
    more_rows = maximum(0, rows - projected_rows)
    return (more_rows * logit_bytes + minimum(rows, projected_rows) * buffer_bytes) * vocabulary
