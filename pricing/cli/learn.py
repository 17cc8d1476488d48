"""`pricing learn`: from readings to a profile file."""

from __future__ import annotations

import click

from pricing.cli.options import json_option
from pricing.cli.output import emit_json, say
from pricing.cli.progress import Progress
from pricing.evidence.trace import read_readings
from pricing.formats.profile_file import ProfileFile, load_profiles, profile_to_json, save_profiles
from pricing.kernel.profile import Profile, observe
from pricing.kernel.requests import Signature


@click.command("learn")
@click.argument("readings", nargs=-1, required=True)
@click.option("-o", "--output", metavar="PROFILE", required=True, help="Profile file to write (replaced as a whole).")
@click.option("--onto", metavar="PROFILE", help="Profile file whose profiles are carried on instead of empty ones.")
@json_option
def command(readings: tuple[str, ...], output: str, onto: str | None, as_json: bool) -> None:
    """Learn a profile from READINGS, files of JSON lines, one reading a line, in the order they were taken.

    \b
        {"packed_rows": 16385, "logical_rows": 131585, "grad_segments": 18,
         "output_bytes": 526340, "peak_delta_bytes": 4509359616, "kind": "whole_wave"}

    Optional: retained_bytes, grads (true), kind (whole_wave, forward_only, split_child, interrupted), closes_wave
    (false) and signature (readings of equal signatures teach one profile). A line of an evidence trace is understood
    too: it is two readings, its forward's return and the whole wave.

    Example:

    \b
        pricing learn spec/evidence/h200/dense-1.jsonl -o profile.json
    """
    known = ProfileFile(profiles={}) if onto is None else load_profiles(onto)
    profiles: dict[Signature | None, Profile] = dict(known.profiles)
    count = ignored = 0
    with Progress("learning") as progress:
        for path in readings:
            for signed in read_readings(path):
                profiles[signed.signature] = observe(profiles.get(signed.signature, Profile()), signed.reading)
                count += 1
                ignored += signed.reading.packed_rows == 0
                progress.reached(count)
    save_profiles(output, ProfileFile(profiles=profiles, environment=known.environment))
    if as_json:
        emit_json({"output": output, "readings": count, "profiles": [_entry(*entry) for entry in profiles.items()]})
        return
    left_out = f" ({ignored:,} more of no rows: they teach nothing)" if ignored else ""
    learned = f"{_counted(count - ignored, 'reading')} learned{left_out}"
    say(f"{output}: {learned}, {_counted(len(profiles), 'profile')}")
    for signature, profile in profiles.items():
        say(_line(signature, profile))


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _line(signature: Signature | None, profile: Profile) -> str:
    named = "" if signature is None else f"{signature.digest}: "
    warm = f"{profile.warm_bytes_per_row:,} B a row" if profile.has_warm_fit else "not yet"
    return (
        f"  {named}{profile.complete_readings:,} complete readings; "
        f"at most {profile.peak_bytes_per_row:,} B a row; warm {warm}; "
        f"up to {profile.largest_packed_rows:,} packed rows; sharing up to {profile.sharing}"
    )


def _entry(signature: Signature | None, profile: Profile) -> dict[str, object]:
    return {"signature": None if signature is None else signature.digest, "profile": profile_to_json(profile)}
