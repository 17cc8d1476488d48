"""What a wave teaches of a head in chunks covers every choice of rows with labels, and obeys SCALE.

The device: when the head runs, `held` bytes are alive beside its workspace, which takes `each` bytes for each logit of
the rows that are in it at once, never more than the charge. Otherwise the wave's peak is `elsewhere`. Several passes
and several forwards of a wave are a maximum over peaks like this one, to which the highest of their additions is made.
"""

from __future__ import annotations

from pricing.kernel.head_rows import chunk_rows, lacking_bytes
from pricing.kernel.quantities import maximum
from proofs.lemmas import a_product_never_falls_as_a_factor_grows
from proofs.solver.proof import Given, theorem


@theorem("head", lemmas=(a_product_never_falls_as_a_factor_grows,))
def what_a_wave_teaches_covers_whatever_rows_of_it_have_labels(t: Given) -> None:
    """Of `rows` one wave projected some in its fullest pass, another wave of them projects others: any number, zero and
    all included. The peak of the one and what it lacked are at least the peak of the other."""
    rows, chunk = t.integer("rows", 0), t.integer("chunk", 1)
    projected, others = t.integer("projected_rows", 0), t.integer("other_projected_rows", 0)
    held, elsewhere = t.integer("held", 0), t.integer("elsewhere", 0)
    each, charge, vocabulary = t.integer("each", 0), t.integer("charge", 0), t.integer("vocabulary", 1)
    t.assume(projected <= rows)
    t.assume(others <= rows)
    t.assume(each <= charge)
    whole, mine, other = chunk_rows(rows, chunk), chunk_rows(projected, chunk), chunk_rows(others, chunk)
    lacking = lacking_bytes(whole, mine, charge, 0, vocabulary)
    t.use(a_product_never_falls_as_a_factor_grows, each, other, whole)
    t.use(a_product_never_falls_as_a_factor_grows, whole - mine, each, charge)
    t.use(a_product_never_falls_as_a_factor_grows, vocabulary, each * other, each * mine + charge * (whole - mine))
    taught = maximum(elsewhere, held + vocabulary * (each * mine)) + lacking
    t.prove(taught >= maximum(elsewhere, held + vocabulary * (each * other)))


@theorem("head", lemmas=(a_product_never_falls_as_a_factor_grows,))
def it_covers_them_also_at_temperatures_that_the_wave_did_not_have(t: Given) -> None:
    """Another wave of the signature takes up to `buffer` bytes more a logit than this one did."""
    rows, chunk = t.integer("rows", 0), t.integer("chunk", 1)
    projected, others = t.integer("projected_rows", 0), t.integer("other_projected_rows", 0)
    held, elsewhere = t.integer("held", 0), t.integer("elsewhere", 0)
    each, dearer, buffer = t.integer("each", 0), t.integer("dearer", 0), t.integer("buffer", 0)
    charge, vocabulary = t.integer("charge", 0), t.integer("vocabulary", 1)
    t.assume(projected <= rows)
    t.assume(others <= rows)
    t.assume(each <= charge)
    t.assume(dearer <= charge)
    t.assume(dearer <= each + buffer)
    whole, mine, other = chunk_rows(rows, chunk), chunk_rows(projected, chunk), chunk_rows(others, chunk)
    lacking = lacking_bytes(whole, mine, charge, buffer, vocabulary)
    t.use(a_product_never_falls_as_a_factor_grows, dearer, other, whole)
    t.use(a_product_never_falls_as_a_factor_grows, whole - mine, dearer, charge)
    t.use(a_product_never_falls_as_a_factor_grows, mine, dearer, each + buffer)
    own = each * mine + (charge * (whole - mine) + buffer * mine)
    t.use(a_product_never_falls_as_a_factor_grows, vocabulary, dearer * other, own)
    taught = maximum(elsewhere, held + vocabulary * (each * mine)) + lacking
    t.prove(taught >= maximum(elsewhere, held + vocabulary * (dearer * other)))


@theorem("head")
def a_full_chunk_lacks_nothing(t: Given) -> None:
    """Waves whose fullest pass fills a chunk teach their own peak."""
    rows, projected, chunk = t.integer("rows", 0), t.integer("projected_rows", 0), t.integer("chunk", 1)
    t.assume(chunk <= projected)
    t.assume(projected <= rows)
    charge, vocabulary = t.integer("charge", 0), t.integer("vocabulary", 1)
    t.prove(lacking_bytes(chunk_rows(rows, chunk), chunk_rows(projected, chunk), charge, 0, vocabulary) == 0)


@theorem("head", lemmas=(a_product_never_falls_as_a_factor_grows,))
def a_chunk_never_grows_faster_than_the_rows(t: Given) -> None:
    """What SCALE asks of the workspace of all rows: of so many times the rows it takes at most as many times."""
    rows, more, chunk = t.integer("rows", 1), t.integer("more_rows", 1), t.integer("chunk", 1)
    t.assume(rows <= more)
    t.use(a_product_never_falls_as_a_factor_grows, chunk, rows, more)
    t.prove(chunk_rows(rows, chunk) <= chunk_rows(more, chunk))
    t.prove(chunk_rows(more, chunk) * rows <= chunk_rows(rows, chunk) * more)
