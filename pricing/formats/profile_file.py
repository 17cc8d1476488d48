"""The profile file: what was learned, kept between runs. One format, read by every command and by the trainer.

    {"checksum": "sha256:...", "format": "packed-pricing profile", "schema_version": 2, "environment": {...},
     "profiles": [{"signature": {...} or null, "profile": {...}}, ...]}

Integers only, keys sorted, entries in the order of their signatures, so equal contents are equal bytes. A file may
hold one profile without a signature (what `pricing learn` makes of plain readings) or one profile for each memory
signature (what a trainer keeps). `environment` is free text by name: what the profiles were learned on.

A profile without warm fields reads as one whose warm fit was never made, and prices as it did before such fields
were written. Version 1 had no evidence of footprints: such a file is read, and its profiles know none. Everything else
that is missing, misspelt, or reachable by no history of readings, is a `FileFormatError`. The checksum is over the
canonical JSON of the rest: one flipped bit can make another valid profile, and a lower price. A file without one is
taken as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, cast

from pricing.formats.codec import Leaf, Natural, decode, encode, naturals
from pricing.formats.files import keep_aside, locked, real_target, write_text_atomically
from pricing.formats.forecasts import ForecastEntry, forecasts_of, forecasts_to_json
from pricing.formats.place import Place
from pricing.formats.strict_json import JsonObject, canonical_json, read_json_file
from pricing.kernel.bands import NO_EVIDENCE, Anchor, Band, Cover, FrontierEvidence
from pricing.kernel.errors import PricingError, ProfileError
from pricing.kernel.forecast import Forecast, ForecastOf, merge_forecasts
from pricing.kernel.made_gradients import is_together
from pricing.kernel.merge import merge
from pricing.kernel.profile import NO_FOOTPRINT, Evidence, EvidenceFields, Profile
from pricing.kernel.quantities import Sharing
from pricing.kernel.requests import RecomputeMode, Signature
from pricing.kernel.shares import Share
from pricing.kernel.splits import SplitKey, SplitPart, merge_splits

FORMAT: Final = "packed-pricing profile"
SCHEMA_VERSION: Final = 2
"""Written. Version 1, of 0.1, is the same without `footprint`, and is read too."""

READ_VERSIONS: Final = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """The contents of one file. The key None is the profile that belongs to no named signature.

    splits: measured peaks of waves that ran as sub-forwards, in bytes; a file without any is written as before there
    were any. forecasts: what first waves are priced by, each by what it is of; no readings, and of no environment.
    """

    profiles: Mapping[Signature | None, Profile]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    splits: Mapping[SplitKey, int] = field(default_factory=lambda: MappingProxyType({}))
    forecasts: Mapping[ForecastOf, Forecast] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def has_readings(self) -> bool:
        """Whether anything in it was learned; a file that begins from a forecast alone knows nothing."""
        return bool(self.profiles or self.splits)

    def select(self, signature: str | None = None) -> Profile:
        """The profile whose signature's digest begins with `signature`, or the only one there is (beside what was
        learned of the same waves together with the gradients they make).

        Raises `ProfileError` saying which signatures there are, when none or several fit.
        """
        fitting = [
            profile
            for known, profile in self.profiles.items()
            if (_is_of_rows(known) if signature is None else _begins(known, signature))
        ]
        if len(fitting) == 1:
            return fitting[0]
        asked = "no signature was named" if signature is None else f"{signature!r} fits {len(fitting)} of them"
        known = ", ".join("(no signature)" if key is None else key.digest for key in self.profiles) or "none"
        raise ProfileError(f"the file holds {len(self.profiles)} profiles and {asked}; signatures: {known}")


def _is_of_rows(known: Signature | None) -> bool:
    return known is None or not is_together(known)


def _begins(known: Signature | None, digest: str) -> bool:
    return known is not None and known.digest.startswith(digest)


def load_profile(path: str | os.PathLike[str], signature: str | None = None) -> Profile:
    """The one profile of a file, or the one whose signature's digest begins with `signature`.

    Raises `FileFormatError` for a file that is no profile file, `ProfileError` where the choice is not one profile,
    `OSError` where it cannot be read.
    """
    contents = load_profiles(path)
    try:
        return contents.select(signature)
    except ProfileError as error:
        raise ProfileError(f"{os.fspath(path)}: {error}") from error


def save_profile(
    path: str | os.PathLike[str],
    profile: Profile,
    signature: Signature | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a file of one profile, whole or not at all. Raises `OSError`."""
    save_profiles(path, ProfileFile(profiles={signature: profile}, environment=environment))


def load_profiles(path: str | os.PathLike[str]) -> ProfileFile:
    """Every profile of a file. Raises `FileFormatError` and `OSError`."""
    return profiles_from_json(read_json_file(path), Place(os.fspath(path)))


def save_profiles(path: str | os.PathLike[str], contents: ProfileFile) -> None:
    """Write a file of profiles, whole or not at all. Raises `OSError`."""
    write_text_atomically(path, profiles_text(contents))


def merge_profiles(path: str | os.PathLike[str], contents: ProfileFile) -> Merged:
    """Write what `contents` and the file know together, under a lock, so that several processes may share one file.

    A file of another environment is replaced, but for its forecasts; contents without readings take over what the file
    knows and where it was learned. One that cannot be read as profiles is kept aside, never written over.
    Raises `OSError`, and `TimeoutError` where another process holds the lock for long.
    """
    with locked(path):
        aside = refusal = None
        profiles, splits = dict(contents.profiles), dict(contents.splits)
        environment, forecasts = contents.environment, dict(contents.forecasts)
        try:
            there = load_profiles(real_target(path))
            forecasts = merge_forecasts(there.forecasts, forecasts)
            if not contents.has_readings:
                profiles, splits, environment = dict(there.profiles), dict(there.splits), there.environment
            elif dict(there.environment) == dict(contents.environment):
                for signature, known in there.profiles.items():
                    ours = profiles.get(signature)
                    profiles[signature] = known if ours is None else merge(ours, known)
                splits = merge_splits(there.splits, splits)
        except FileNotFoundError:
            pass
        except PricingError as error:
            refusal, aside = str(error), keep_aside(path)
        merged = ProfileFile(profiles=profiles, environment=environment, splits=splits, forecasts=forecasts)
        save_profiles(path, merged)
    return Merged(contents=merged, refusal=refusal, aside=aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What `merge_profiles` wrote. refusal, aside: why the file that was there was not read, and where it is now."""

    contents: ProfileFile
    refusal: str | None
    aside: Path | None


def checksum_of(canonical: str) -> str:
    """The checksum of a profile file: over the canonical JSON of everything else in it."""
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def profiles_text(contents: ProfileFile) -> str:
    """The file as text: equal for equal contents."""
    entries = sorted(contents.profiles.items(), key=lambda entry: "" if entry[0] is None else entry[0].key)
    splits = sorted(contents.splits.items(), key=lambda entry: (entry[0][0].key, entry[0][1]))
    document: JsonObject = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "environment": dict(contents.environment),
        "profiles": [encode(_Entry(signature=signature, profile=profile)) for signature, profile in entries],
    }
    if splits:
        document["splits"] = [
            encode(_Split(signature=signature, parts=parts, peak_bytes=peak)) for (signature, parts), peak in splits
        ]
    if contents.forecasts:
        document["forecasts"] = forecasts_to_json(contents.forecasts)
    document["checksum"] = checksum_of(canonical_json(document))
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def profiles_from_json(data: JsonObject, place: Place) -> ProfileFile:
    """The contents of a document of this format. Raises `FileFormatError`."""
    head = decode(_Head, {name: value for name, value in data.items() if name in ("format", "schema_version")}, place)
    if head.format != FORMAT:
        raise place.member("format").error(f'must be "{FORMAT}"', head.format)
    if head.schema_version not in READ_VERSIONS:
        known = " and ".join(map(str, READ_VERSIONS))
        raise place.member("schema_version").error(f"this build reads version {known} only", head.schema_version)
    document = decode(_Document, data, place)
    profiles: dict[Signature | None, Profile] = {}
    for at, entry in enumerate(document.profiles):
        if entry.signature in profiles:
            twice = place.member("profiles").item(at).member("signature")
            raise twice.error("stands there twice", None if entry.signature is None else entry.signature.digest)
        profiles[entry.signature] = entry.profile
    if document.checksum is not None and document.checksum != checksum_of(_canonical_rest(data, place)):
        raise place.member("checksum").error("does not fit the content: the file is damaged, or was edited by hand")
    return ProfileFile(
        profiles=MappingProxyType(profiles),
        environment=MappingProxyType(dict(document.environment or {})),
        splits=MappingProxyType(
            {(split.signature, tuple(sorted(split.parts))): split.peak_bytes for split in document.splits or ()}
        ),
        forecasts=MappingProxyType(forecasts_of(document.forecasts or (), place.member("forecasts"))),
    )


def _canonical_rest(data: JsonObject, place: Place) -> str:
    """What the checksum is over: everything but itself."""
    try:
        return canonical_json({name: value for name, value in data.items() if name != "checksum"})
    except TypeError:
        raise place.error("holds a fraction where this format has whole numbers only") from None


def profile_to_json(profile: Profile) -> JsonObject:
    """A profile as JSON values; exact. `footprint` is null where no footprint was read."""
    footprint = profile.footprint
    return {
        **evidence_to_json(profile),
        "footprint": None if footprint == NO_FOOTPRINT else evidence_to_json(footprint),
    }


def evidence_to_json(evidence: Evidence) -> JsonObject:
    """What was learned of one quantity, as JSON values. Without witnesses it is written as before there were any."""
    values = {spec: getattr(evidence, spec) for spec in EvidenceFields.__annotations__}
    written = cast(JsonObject, encode(_Evidence(**values)))
    return {name: value for name, value in written.items() if name != "witnesses" or value}


def profile_from_json(data: object, place: Place) -> Profile:
    """The profile that `profile_to_json` wrote, or that was written before profiles had warm fields or footprints.

    Such an old profile counts only its seed: the warm fit begins with the next complete reading, as it would have. A
    profile without frontier evidence has learned none: the frontier law prices it as the warm law until it has. One
    without footprints is priced at a factor above what is allocated until it has one; one without witnesses holds no
    reading against its prices.
    """
    read = decode(_Profile, data, place)
    assert isinstance(data, dict)
    footprint = NO_FOOTPRINT
    if read.footprint is not None:
        taken = _evidence_fields(read.footprint, data["footprint"])
        footprint = place.member("footprint").build(lambda: Evidence(**taken))
    allocated = _evidence_fields(read, data)
    return place.build(lambda: Profile(**allocated, footprint=footprint))


_WARM_FIELDS: Final = ("warm_bytes_per_row", "warm_packed_rows", "warm_sharing")


def _evidence_fields(read: _Evidence, data: Mapping[str, object]) -> EvidenceFields:
    is_older = not any(name in data for name in _WARM_FIELDS)
    return EvidenceFields(
        peak_bytes_per_row=read.peak_bytes_per_row,
        largest_packed_rows=read.largest_packed_rows,
        sharing=read.sharing,
        retained_bytes_per_row=read.retained_bytes_per_row,
        complete_readings=min(read.complete_readings, 1) if is_older else read.complete_readings,
        warm_bytes_per_row=read.warm_bytes_per_row,
        warm_packed_rows=read.warm_packed_rows,
        warm_sharing=read.warm_sharing,
        frontier=read.frontier or NO_EVIDENCE,
        witnesses=read.witnesses or (),
    )


# --- rows of integers ------------------------------------------------------------------------------------------------


def _row(data: object, place: Place, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """A list of integers in [0, 2**63 - 1], of one of these lengths."""
    if not isinstance(data, list) or len(data) not in lengths:
        raise place.error(f"must be a list of {' or '.join(map(str, lengths))} integers", data)
    return naturals(data, place)


def _anchor_to_json(anchor: Anchor) -> list[int]:
    return [anchor.compute_bytes, anchor.packed_rows, anchor.logical_rows, anchor.grad_segments]


def _anchor_of_row(row: tuple[int, ...]) -> Anchor:
    return Anchor(compute_bytes=row[0], packed_rows=row[1], logical_rows=row[2], grad_segments=row[3])


def _band_to_json(band: Band) -> list[int]:
    """A band as one row of integers: its key, its cover, and its anchor if it has one (6 or 10 of them)."""
    cover = band.cover
    row = [band.size, band.sharing]
    row += [cover.compute_bytes, cover.bytes_per_row, cover.logical_rows, cover.grad_segments]
    return row if band.anchor is None else row + _anchor_to_json(band.anchor)


def _band_from_json(data: object, place: Place) -> Band:
    row = _row(data, place, (6, 10))
    return Band(
        size=row[0],
        sharing=row[1],
        cover=Cover(compute_bytes=row[2], bytes_per_row=row[3], logical_rows=row[4], grad_segments=row[5]),
        anchor=_anchor_of_row(row[6:]) if len(row) == 10 else None,
    )


def _part_from_json(data: object, place: Place) -> SplitPart:
    packed, logical, segments, output_bytes = _row(data, place, (4,))
    return packed, logical, segments, output_bytes


# --- the format ------------------------------------------------------------------------------------------------------

_Witness = Annotated[
    Anchor, Leaf(encode=_anchor_to_json, decode=lambda data, place: _anchor_of_row(_row(data, place, (4,))))
]
_BandRow = Annotated[Band, Leaf(encode=_band_to_json, decode=_band_from_json)]
_PartRow = Annotated[SplitPart, Leaf(encode=list, decode=_part_from_json)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontier:
    """Frontier evidence. Both sets of bands must be there."""

    peak: tuple[_BandRow, ...]
    retained: tuple[_BandRow, ...]


def _frontier_to_json(evidence: FrontierEvidence) -> object:
    return encode(_Frontier(peak=evidence.peak, retained=evidence.retained))


def _frontier_from_json(data: object, place: Place) -> FrontierEvidence:
    bands = decode(_Frontier, data, place)
    return FrontierEvidence(peak=bands.peak, retained=bands.retained)


_FrontierBands = Annotated[FrontierEvidence, Leaf(encode=_frontier_to_json, decode=_frontier_from_json)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What was learned of one quantity."""

    peak_bytes_per_row: Natural
    largest_packed_rows: Natural
    sharing: Sharing
    retained_bytes_per_row: Natural | None = None
    complete_readings: Natural = 0
    warm_bytes_per_row: Natural | None = None
    warm_packed_rows: Natural | None = None
    warm_sharing: Sharing | None = None
    frontier: _FrontierBands | None = None
    witnesses: tuple[_Witness, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile(_Evidence):
    """A profile: evidence of what is allocated, and beside it that of footprints."""

    footprint: _Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecomputeForm:
    """A recompute mode. Whether it really happens has no default: a price without it means nothing."""

    granularity: str
    method: str | None = None
    num_layers: Natural | None = None
    training: bool


def recompute_to_json(mode: RecomputeMode) -> JsonObject:
    """A recompute mode as JSON values; exact."""
    form = _RecomputeForm(
        granularity=mode.granularity, method=mode.method, num_layers=mode.num_layers, training=mode.training
    )
    return cast(JsonObject, encode(form))


def _recompute_from_json(data: object, place: Place) -> RecomputeMode:
    form = decode(_RecomputeForm, data, place)
    return RecomputeMode(
        granularity=form.granularity, method=form.method, num_layers=form.num_layers, training=form.training
    )


_Recompute = Annotated[RecomputeMode, Leaf(encode=recompute_to_json, decode=_recompute_from_json)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signature:
    """A memory signature. One of before there were shares has none."""

    topology: str
    group_count: Natural
    request_mixes: tuple[str, ...]
    grad_modes: tuple[bool, ...]
    adapter_shapes: tuple[str, ...]
    recompute: _Recompute
    shares: tuple[Share, ...] | None = None


def signature_to_json(signature: Signature) -> JsonObject:
    """A signature as JSON values; exact. One without shares is written as before there were any."""
    form = _Signature(
        topology=signature.topology,
        group_count=signature.group_count,
        request_mixes=signature.request_mixes,
        grad_modes=signature.grad_modes,
        adapter_shapes=signature.adapter_shapes,
        recompute=signature.recompute,
        shares=signature.shares,
    )
    written = cast(JsonObject, encode(form))
    return {name: value for name, value in written.items() if name != "shares" or value}


def signature_from_json(data: object, place: Place) -> Signature:
    """The signature that `signature_to_json` wrote. Raises `FileFormatError`."""
    form = decode(_Signature, data, place)
    return place.build(
        lambda: Signature(
            topology=form.topology,
            group_count=form.group_count,
            request_mixes=form.request_mixes,
            grad_modes=form.grad_modes,
            adapter_shapes=form.adapter_shapes,
            recompute=form.recompute,
            shares=form.shares or (),
        )
    )


SignatureField = Annotated[Signature, Leaf(encode=signature_to_json, decode=signature_from_json)]
ProfileField = Annotated[Profile, Leaf(encode=profile_to_json, decode=profile_from_json)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A profile and whose it is."""

    signature: SignatureField | None = None
    profile: ProfileField


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The measured peak of a wave that ran in parts."""

    signature: SignatureField
    parts: tuple[_PartRow, ...]
    peak_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """What tells this format, and its version, from others."""

    format: str
    schema_version: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document(_Head):
    """A profile file."""

    environment: Mapping[str, str] | None = None
    profiles: tuple[_Entry, ...]
    splits: tuple[_Split, ...] | None = None
    forecasts: tuple[ForecastEntry, ...] | None = None
    checksum: str | None = None
