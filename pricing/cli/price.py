"""`pricing price`: one wave, one profile, one price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from pricing.cli.options import json_option, law_option, profile_option, safety_option, signature_option
from pricing.cli.output import emit_json, price_to_json, say
from pricing.cli.wave_input import WAVE_HELP, read_wave, wave_options
from pricing.formats.profile_file import load_profile
from pricing.kernel.law import Law
from pricing.kernel.price import Price, price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Safety
from pricing.kernel.wave import Wave
from pricing.text import gib_text

EXAMPLE: Final = """
\b
    pricing learn spec/evidence/h200/dense-1.jsonl -o profile.json
    pricing {verb} --profile profile.json --packed-rows 16205 --logical-rows 109065
"""

Report = Callable[[Wave, Profile, Price, bool], None]
"""What a verb does with the wave, the profile, the price, and whether JSON was asked for."""


def priced_verb(name: str, summary: str) -> Callable[[Report], click.Command]:
    """A verb that prices a wave by a profile; what it then says is the decorated function's part."""

    def verb(report: Report) -> click.Command:
        @click.command(name, help=f"{summary}\n\nExample:\n{EXAMPLE.format(verb=name)}{WAVE_HELP}")
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
            wave = read_wave(wave_path, options)
            profile = Profile() if profile_path is None else load_profile(profile_path, signature)
            report(wave, profile, price(wave, profile, law, safety), as_json)

        return command

    return verb


@priced_verb("price", "Price one WAVE by a profile: the peak above its baseline that it is expected to need.")
def command(wave: Wave, profile: Profile, priced: Price, as_json: bool) -> None:
    if as_json:
        emit_json(price_to_json(priced))
        return
    if profile.is_empty and not priced.required_bytes:
        say("Cold: no price. Nothing was learned yet (no profile was given, or an empty one), and no output or floor")
        say("of the wave is known. `pricing learn TRACE -o profile.json` makes a profile; give it as --profile.")
        return
    decided = f"bound by the {priced.quantity}, {priced.binding_term}"
    say(f"{priced.required_bytes} bytes ({gib_text(priced.required_bytes)}), {decided}")
    if profile.is_empty:
        say("Priced cold: nothing was learned yet, so outputs and the floor are all there is.", err=True)
