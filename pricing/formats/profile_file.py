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
from typing import Final

from pricing.formats.files import keep_aside, locked, real_target, write_text_atomically
from pricing.formats.strict_json import Fields, canonical_json, read_json_file
from pricing.kernel.bands import Anchor, Band, Bands, Cover, FrontierEvidence, Witnesses
from pricing.kernel.errors import PricingError, ProfileError
from pricing.kernel.made_gradients import is_together
from pricing.kernel.merge import merge
from pricing.kernel.profile import NO_FOOTPRINT, Evidence, EvidenceFields, Profile
from pricing.kernel.quantities import Sharing
from pricing.kernel.requests import RecomputeMode, Signature
from pricing.kernel.shares import Share
from pricing.kernel.splits import SplitKey, merge_splits

FORMAT: Final = "packed-pricing profile"
SCHEMA_VERSION: Final = 2
"""Written. Version 1, of 0.1, is the same without `footprint`, and is read too."""

READ_VERSIONS: Final = (1, 2)

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """The contents of one file. The key None is the profile that belongs to no named signature.

    splits: measured peaks of waves that ran as sub-forwards, in bytes; a file without any is written as before there
    were any.
    """

    profiles: Mapping[Signature | None, Profile]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    splits: Mapping[SplitKey, int] = field(default_factory=lambda: MappingProxyType({}))

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
    return profiles_from_json(read_json_file(path))


def save_profiles(path: str | os.PathLike[str], contents: ProfileFile) -> None:
    """Write a file of profiles, whole or not at all. Raises `OSError`."""
    write_text_atomically(path, profiles_text(contents))


def merge_profiles(path: str | os.PathLike[str], contents: ProfileFile) -> Merged:
    """Write what `contents` and the file know together, under a lock, so that several processes may share one file.

    A file of another environment is replaced. One that cannot be read as profiles is kept aside, never written over.
    Raises `OSError`, and `TimeoutError` where another process holds the lock for long.
    """
    with locked(path):
        aside = refusal = None
        profiles, splits = dict(contents.profiles), dict(contents.splits)
        try:
            there = load_profiles(real_target(path))
            if dict(there.environment) == dict(contents.environment):
                for signature, known in there.profiles.items():
                    ours = profiles.get(signature)
                    profiles[signature] = known if ours is None else merge(ours, known)
                splits = merge_splits(there.splits, splits)
        except FileNotFoundError:
            pass
        except PricingError as error:
            refusal, aside = str(error), keep_aside(path)
        merged = ProfileFile(profiles=profiles, environment=contents.environment, splits=splits)
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
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "environment": dict(contents.environment),
        "profiles": [
            {
                "signature": None if signature is None else signature_to_json(signature),
                "profile": profile_to_json(profile),
            }
            for signature, profile in entries
        ],
    }
    if contents.splits:
        document["splits"] = [
            {"signature": signature_to_json(signature), "parts": [list(part) for part in parts], "peak_bytes": peak}
            for (signature, parts), peak in sorted(
                contents.splits.items(), key=lambda entry: (entry[0][0].key, entry[0][1])
            )
        ]
    document["checksum"] = checksum_of(canonical_json(document))
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def profiles_from_json(fields: Fields) -> ProfileFile:
    """The contents of a document of this format. Raises `FileFormatError`."""
    if fields.text("format") != FORMAT:
        raise fields.error("format", f'must be "{FORMAT}"', fields.raw("format"))
    if fields.count("schema_version") not in READ_VERSIONS:
        raise fields.error(
            "schema_version",
            f"this build reads version {' and '.join(map(str, READ_VERSIONS))} only",
            fields.raw("schema_version"),
        )
    environment = fields.optional_member("environment")
    profiles: dict[Signature | None, Profile] = {}
    for entry in fields.members("profiles"):
        named = entry.optional_member("signature")
        signature = None if named is None else signature_from_json(named)
        if signature in profiles:
            raise entry.error("signature", "stands there twice", None if signature is None else signature.digest)
        profiles[signature] = profile_from_json(entry.member("profile"))
        entry.finish()
    splits: dict[SplitKey, int] = {}
    for entry in fields.members("splits") if fields.has("splits") else ():
        of, parts = signature_from_json(entry.member("signature")), entry.rows("parts", (4,))
        splits[of, tuple(sorted((rows[0], rows[1], rows[2], rows[3]) for rows in parts))] = entry.count("peak_bytes")
        entry.finish()
    written = fields.optional_text("checksum")
    fields.finish()
    if written is not None and written != checksum_of(fields.canonical_without("checksum")):
        raise fields.error("checksum", "does not fit the content: the file is damaged, or was edited by hand")
    return ProfileFile(
        profiles=MappingProxyType(profiles),
        environment=MappingProxyType({} if environment is None else _texts_by_name(environment)),
        splits=MappingProxyType(splits),
    )


def profile_to_json(profile: Profile) -> Json:
    """A profile as JSON values; exact. `footprint` is null where no footprint was read."""
    footprint = profile.footprint
    return {
        **evidence_to_json(profile),
        "footprint": None if footprint == NO_FOOTPRINT else evidence_to_json(footprint),
    }


def evidence_to_json(evidence: Evidence) -> Json:
    """What was learned of one quantity, as JSON values. Without witnesses it is written as before there were any."""
    beside: Json = {}
    if evidence.witnesses:
        beside["witnesses"] = [_anchor_to_json(anchor) for anchor in evidence.witnesses]
    return beside | {
        "peak_bytes_per_row": evidence.peak_bytes_per_row,
        "largest_packed_rows": evidence.largest_packed_rows,
        "sharing": sharing_to_json(evidence.sharing),
        "retained_bytes_per_row": evidence.retained_bytes_per_row,
        "complete_readings": evidence.complete_readings,
        "warm_bytes_per_row": evidence.warm_bytes_per_row,
        "warm_packed_rows": evidence.warm_packed_rows,
        "warm_sharing": None if evidence.warm_sharing is None else sharing_to_json(evidence.warm_sharing),
        "frontier": {
            "peak": [_band_to_json(band) for band in evidence.frontier.peak],
            "retained": [_band_to_json(band) for band in evidence.frontier.retained],
        },
    }


def _band_to_json(band: Band) -> list[int]:
    """A band as one row of integers: its key, its cover, and its anchor if it has one (6 or 10 of them)."""
    cover, anchor = band.cover, band.anchor
    row = [band.size, band.sharing]
    row += [cover.compute_bytes, cover.bytes_per_row, cover.logical_rows, cover.grad_segments]
    if anchor is not None:
        row += _anchor_to_json(anchor)
    return row


def _anchor_to_json(anchor: Anchor) -> list[int]:
    return [anchor.compute_bytes, anchor.packed_rows, anchor.logical_rows, anchor.grad_segments]


def _anchor_from_json(row: tuple[int, ...]) -> Anchor:
    return Anchor(compute_bytes=row[0], packed_rows=row[1], logical_rows=row[2], grad_segments=row[3])


def _frontier_from_json(fields: Fields) -> FrontierEvidence:
    evidence = FrontierEvidence(peak=_bands_from_json(fields, "peak"), retained=_bands_from_json(fields, "retained"))
    fields.finish()
    return evidence


def _bands_from_json(fields: Fields, name: str) -> Bands:
    return tuple(_band_from_json(row) for row in fields.rows(name, (6, 10)))


def _band_from_json(row: tuple[int, ...]) -> Band:
    return Band(
        size=row[0],
        sharing=row[1],
        cover=Cover(compute_bytes=row[2], bytes_per_row=row[3], logical_rows=row[4], grad_segments=row[5]),
        anchor=_anchor_from_json(row[6:]) if len(row) == 10 else None,
    )


_WARM_FIELDS: Final = ("warm_bytes_per_row", "warm_packed_rows", "warm_sharing")


def profile_from_json(fields: Fields) -> Profile:
    """The profile that `profile_to_json` wrote, or that was written before profiles had warm fields or footprints.

    Such an old profile counts only its seed: the warm fit begins with the next complete reading, as it would have. A
    profile without frontier evidence has learned none: the frontier law prices it as the warm law until it has. One
    without footprints is priced at a factor above what is allocated until it has one; one without witnesses holds no
    reading against its prices.
    """
    allocated = _evidence_fields(fields)
    beside = fields.optional_member("footprint")
    footprint = NO_FOOTPRINT
    if beside is not None:
        taken = _evidence_fields(beside)
        beside.finish()
        footprint = beside.build(lambda: Evidence(**taken))
    fields.finish()
    return fields.build(lambda: Profile(**allocated, footprint=footprint))


def _evidence_fields(fields: Fields) -> EvidenceFields:
    complete = fields.count("complete_readings", 0)
    if not any(name in _WARM_FIELDS for name in fields.unknown):
        complete = min(complete, 1)
    peak, rows = fields.count("peak_bytes_per_row"), fields.count("largest_packed_rows")
    sharing = sharing_from_json(fields.member("sharing"))
    retained = fields.optional_count("retained_bytes_per_row")
    warm, warm_rows = fields.optional_count("warm_bytes_per_row"), fields.optional_count("warm_packed_rows")
    warm_pair = fields.optional_member("warm_sharing")
    bands = fields.optional_member("frontier")
    return EvidenceFields(
        peak_bytes_per_row=peak,
        largest_packed_rows=rows,
        sharing=sharing,
        retained_bytes_per_row=retained,
        complete_readings=complete,
        warm_bytes_per_row=warm,
        warm_packed_rows=warm_rows,
        warm_sharing=None if warm_pair is None else sharing_from_json(warm_pair),
        frontier=FrontierEvidence() if bands is None else _frontier_from_json(bands),
        witnesses=_witnesses_from_json(fields) if fields.has("witnesses") else (),
    )


def _witnesses_from_json(fields: Fields) -> Witnesses:
    return tuple(_anchor_from_json(row) for row in fields.rows("witnesses", (4,)))


def sharing_to_json(sharing: Sharing) -> Json:
    return {"logical_rows": sharing.logical_rows, "packed_rows": sharing.packed_rows}


def sharing_from_json(fields: Fields) -> Sharing:
    logical, packed = fields.count("logical_rows"), fields.count("packed_rows")
    fields.finish()
    return fields.build(lambda: Sharing(logical_rows=logical, packed_rows=packed))


def signature_to_json(signature: Signature) -> Json:
    """A signature as JSON values; exact. One without shares is written as before there were any."""
    facts: Json = {
        "topology": signature.topology,
        "group_count": signature.group_count,
        "request_mixes": list(signature.request_mixes),
        "grad_modes": list(signature.grad_modes),
        "adapter_shapes": list(signature.adapter_shapes),
        "recompute": recompute_to_json(signature.recompute),
    }
    if signature.shares:
        facts["shares"] = [
            {"quantity": share.quantity, "kind": share.kind, "size_class": share.size_class}
            for share in signature.shares
        ]
    return facts


def signature_from_json(fields: Fields) -> Signature:
    topology, groups = fields.text("topology"), fields.count("group_count")
    mixes, adapters = fields.texts("request_mixes"), fields.texts("adapter_shapes")
    modes = fields.flags("grad_modes")
    recompute = recompute_from_json(fields.member("recompute"))
    shares = tuple(_share_from_json(entry) for entry in fields.members("shares")) if fields.has("shares") else ()
    fields.finish()
    return fields.build(
        lambda: Signature(
            topology=topology,
            group_count=groups,
            request_mixes=mixes,
            grad_modes=modes,
            adapter_shapes=adapters,
            recompute=recompute,
            shares=shares,
        )
    )


def _share_from_json(fields: Fields) -> Share:
    quantity, kind, size_class = fields.text("quantity"), fields.text("kind"), fields.count("size_class")
    fields.finish()
    return fields.build(lambda: Share(quantity=quantity, kind=kind, size_class=size_class))


def recompute_to_json(mode: RecomputeMode) -> Json:
    return {
        "granularity": mode.granularity,
        "method": mode.method,
        "num_layers": mode.num_layers,
        "training": mode.training,
    }


def recompute_from_json(fields: Fields) -> RecomputeMode:
    mode = RecomputeMode(
        granularity=fields.text("granularity"),
        method=fields.optional_text("method"),
        num_layers=fields.optional_count("num_layers"),
        training=fields.flag("training"),
    )
    fields.finish()
    return mode


def _texts_by_name(fields: Fields) -> dict[str, str]:
    return {name: fields.text(name) for name in fields.unknown}
