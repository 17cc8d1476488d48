"""`pricing budget`: its table, its JSON, and what it says to bad input."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pricing.cli.app import pricing
from pricing.formats.profile_file import ProfileFile, save_profile, save_profiles
from pricing.kernel.laws import LAWS
from pricing.kernel.quantities import GIB, MIB, Safety
from pricing.kernel.requests import ONE_LAYER_FULL, Signature
from pricing.planner.most_rows import most_rows
from tests.planner.naive import learned

PROFILE = learned(rows=4_000, bytes_per_row=100_000)


@pytest.fixture
def profile_path(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    save_profile(path, PROFILE)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(pricing, ["budget", *arguments])


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("law", list(LAWS))
def test_json_is_the_function_at_each_sharing(law: str, profile_path: str) -> None:
    told = document(
        profile_path, "--available", "1GiB", "--law", law, "--safety", "51/50", "--sharing", "1", "--sharing", "6.5"
    )
    assert (told["law"], told["safety"], told["available_bytes"], told["signature"]) == (law, "51/50", GIB, None)
    for line, sharing in zip(told["budgets"], (Fraction(1), Fraction(13, 2)), strict=True):
        ours = most_rows(PROFILE, available_bytes=GIB, sharing=sharing, law=LAWS[law], safety=Safety.parse("51/50"))
        assert (line["sharing"], line["rows"], line["logical_rows"]) == (str(sharing), ours.rows, ours.logical_rows)
        assert line["required_bytes"] == ours.price.required_bytes <= GIB < line["next"]["required_bytes"]
        assert line["binding_term"] == ours.price.binding_term
        assert (line["next"]["rows"], line["next"]["does_not_fit_for"]) == (ours.rows + 1, "memory")


def test_the_table_is_for_people(profile_path: str) -> None:
    result = run(profile_path, "--available", "1GiB")
    assert result.exit_code == 0
    for said in ("Most rows in 1.00 GiB", "law frontier", "sharing", "next rows", "bound by", "frontier"):
        assert said in result.stdout, said
    assert [line.split("│")[1].strip() for line in result.stdout.splitlines() if "│" in line] == ["1", "2", "4", "8"]


def test_trust_growth_is_told(profile_path: str) -> None:
    result = run(profile_path, "--available", "500GiB", "--sharing", "1")
    assert "32,000" in result.stdout and "more than 8 times the most ever seen" in result.stdout
    (line,) = document(profile_path, "--available", "500GiB", "--sharing", "1")["budgets"]
    assert (line["rows"], line["next"]["does_not_fit_for"]) == (32_000, "trust growth")


def test_where_nothing_fits_it_says_what_the_least_needs_and_exits_with_1(profile_path: str) -> None:
    result = run(profile_path, "--available", "10KiB", "--sharing", "1")
    assert result.exit_code == 1 and "At sharing 1 nothing fits: 1 rows need" in result.stdout


def test_one_of_several_profiles_is_chosen_and_decides_by_its_signature(tmp_path: Path) -> None:
    of_logits = Signature(
        topology="t", group_count=1, request_mixes=("logits",), grad_modes=(True,), adapter_shapes=("",),
        recompute=ONE_LAYER_FULL,
    )  # fmt: skip
    of_labels = Signature(
        topology="t", group_count=1, request_mixes=("target:single",), grad_modes=(True,), adapter_shapes=("",),
        recompute=ONE_LAYER_FULL,
    )  # fmt: skip
    path = tmp_path / "profiles.json"
    save_profiles(path, ProfileFile(profiles={of_logits: PROFILE, of_labels: learned(rows=500)}))
    refused = run(str(path), "--available", "1GiB")
    assert refused.exit_code == 2 and "holds 2 profiles" in refused.stderr
    told = document(str(path), "--available", "1GiB", "--signature", of_logits.digest[:8])
    assert told["signature"] == of_logits.digest
    assert not told["budgets"][0]["price"]["packed_priced"]


def test_bad_use_is_refused(profile_path: str, tmp_path: Path) -> None:
    for arguments, said in (
        ((profile_path,), "--available"),
        ((profile_path, "--available", "60 parsecs"), "not an amount of memory"),
        ((profile_path, "--available", "1GiB", "--sharing", "0.5"), "not a sharing of at least 1"),
        ((profile_path, "--available", "1GiB", "--sharing", "many"), "not a sharing of at least 1"),
        ((profile_path, "--available", "1GiB", "--row-multiple", "0"), "row_multiple: must be at least 1"),
        ((profile_path, "--available", "1GiB", "--law", "murphy"), "unknown law"),
        ((str(tmp_path / "nowhere"), "--available", "1GiB"), "nowhere"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and said in result.stderr and "Traceback" not in result.stderr, arguments


def test_options_reach_the_price(profile_path: str) -> None:
    plain = document(profile_path, "--available", "1GiB", "--sharing", "1")["budgets"][0]["rows"]
    rounded = document(profile_path, "--available", "1GiB", "--sharing", "1", "--row-multiple", "64")["budgets"][0]
    assert rounded["rows"] == plain // 64 * 64 and rounded["next"]["rows"] == rounded["rows"] + 64
    for option, value in (("--output-bytes-per-row", "100000"), ("--segment-state-bytes", str(8 * MIB))):
        fewer = document(profile_path, "--available", "1GiB", "--sharing", "1", option, value)["budgets"][0]["rows"]
        assert fewer < plain, option
