"""`pricing price`: one wave, one profile, one price."""

from __future__ import annotations

import click

from pricing.cli.options import json_option, law_option, profile_option, safety_option, signature_option
from pricing.cli.output import emit_json, gib_text, price_to_json
from pricing.cli.wave_input import WAVE_HELP, read_wave, wave_options
from pricing.law import Law, Price, price
from pricing.profile import Profile
from pricing.profile_file import load_profile
from pricing.quantities import Safety
from pricing.wave import Wave

EXAMPLE = """
\b
    pricing learn spec/evidence/h200/dense-1.jsonl -o profile.json
    pricing {verb} --profile profile.json --packed-rows 16205 --logical-rows 109065
"""


@click.command(
    "price",
    help="Price one WAVE by a profile: the peak above its baseline that it is expected to need.\n\nExample:\n"
    + EXAMPLE.format(verb="price")
    + WAVE_HELP,
)
@wave_options
@profile_option(required=False)
@signature_option
@law_option
@safety_option
@json_option
def command(
    wave_path: str | None,
    profile_path: str | None,
    signature: str | None,
    law: Law,
    safety: Safety,
    as_json: bool,
    **options: object,
) -> None:
    _, _, priced = priced_wave(wave_path, options, profile_path, signature, law, safety)
    if as_json:
        emit_json(price_to_json(priced))
        return
    click.echo(f"{priced.required_bytes} bytes ({gib_text(priced.required_bytes)}), bound by {priced.binding_term}")
    if profile_path is None:
        click.echo("Priced cold: no profile was given, so outputs and the floor are all there is.", err=True)


def priced_wave(
    wave_path: str | None,
    options: dict[str, object],
    profile_path: str | None,
    signature: str | None,
    law: Law,
    safety: Safety,
) -> tuple[Wave, Profile, Price]:
    """What `price` and `explain` share: the wave, the profile and the price."""
    wave = read_wave(wave_path, options)
    profile = Profile() if profile_path is None else load_profile(profile_path, signature)
    return wave, profile, price(wave, profile, law, safety)
