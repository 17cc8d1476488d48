"""`pricing plan`: what it prints for people and programs, and what it says to bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pricing.cli.app import pricing
from pricing.cli.items_file import read_items
from pricing.cli.plan import parse_recompute
from pricing.formats.profile_file import ProfileFile, save_profile, save_profiles
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import GIB
from pricing.kernel.rate_laws import WARM
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, Signature
from pricing.planner.batch import Batch
from pricing.planner.plan import plan_batch
from pricing.planner.tokens import ArrayTokens, NumpyTokens
from tests.planner.naive import learned

PROFILE = learned(rows=4_000, bytes_per_row=100_000)
SIGNATURE = Signature(
    topology="tp1",
    group_count=1,
    request_mixes=("target:single",),
    grad_modes=(True,),
    adapter_shapes=("",),
    recompute=ONE_LAYER_FULL,
)


def rollouts(prompts: int = 3, count: int = 4) -> list[dict[str, Any]]:
    return [
        {"length": 1_000 + 100 * number, "prefix": f"prompt-{prompt}", "prefix_length": 800}
        for prompt in range(prompts)
        for number in range(count)
    ]


@pytest.fixture
def profile_path(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    save_profile(path, PROFILE)
    return str(path)


def written(tmp_path: Path, lines: list[dict[str, Any]]) -> str:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def run(*arguments: str) -> Result:
    """By the warm law: the profile knows one size, and the frontier law prices smaller waves as that one."""
    return CliRunner().invoke(pricing, ["plan", "--law", "warm", *arguments])


def planned(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    plan = json.loads(result.stdout)
    assert isinstance(plan, dict)
    assert result.exit_code == any(wave["verdict"] == "refuse" for wave in plan["waves"])
    return plan


def test_json_holds_every_wave_with_its_own_figures(tmp_path: Path, profile_path: str) -> None:
    path = written(tmp_path, rollouts())
    plan = planned(path, "--profile", profile_path, "--budget", "300MiB")
    assert (plan["law"], plan["safety"], plan["budget_bytes"], plan["items"]) == ("warm", "11/10", 300 << 20, 12)
    assert sum(wave["width"] for wave in plan["waves"]) == 12 and plan["stopped"] is None
    for wave in plan["waves"]:
        assert wave["verdict"] == "run"
        assert wave["required_bytes"] == wave["price"]["required_bytes"] == 300 * (1 << 20) - wave["headroom_bytes"]
        assert wave["packed_rows"] <= wave["logical_rows"] == wave["unshared_rows"]
        assert wave["tried"][0]["width"] == 1 and any(tried["width"] == wave["width"] for tried in wave["tried"])
    batch = Batch(read_items(path, NumpyTokens()))
    ours = plan_batch(batch, profiles=_Everywhere(PROFILE), available_bytes=300 << 20, law=WARM)
    assert [wave["width"] for wave in plan["waves"]] == [wave.width for wave in ours.waves]


class _Everywhere(dict[Signature, Profile]):
    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._profile = profile

    def get(self, signature: Any, default: Any = None) -> Any:
        return self._profile

    def __missing__(self, signature: Signature) -> Profile:
        return self._profile


def test_the_table_is_for_people(tmp_path: Path, profile_path: str) -> None:
    result = run(written(tmp_path, rollouts()), "--profile", profile_path, "--budget", "300MiB")
    assert result.exit_code == 0
    for said in ("12 items", "0.29 GiB", "law warm", "headroom", "sharing", "run"):
        assert said in result.stdout, said


def test_without_a_profile_only_the_first_wave_is_planned_and_it_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, rollouts())
    plan = planned(path, "--budget", "1GiB")
    assert [(wave["width"], wave["verdict"]) for wave in plan["waves"]] == [(1, "cold_start")]
    assert plan["unplanned_items"] == 11
    text = run(path, "--budget", "1GiB").stdout
    assert "There is no profile. Planned 1 of 12 items" in text.replace("\n", " ")


def test_refusals_are_told_in_full_and_do_not_end_the_plan(tmp_path: Path, profile_path: str) -> None:
    lines = [*rollouts(1), {"requests": [{"length": 6_000}, {"length": 5_000}]}, *rollouts(1)]
    path = written(tmp_path, lines)
    plan = planned(path, "--profile", profile_path, "--budget", "300MiB")
    assert [wave["verdict"] for wave in plan["waves"]].count("refuse") == 1
    refused = next(wave for wave in plan["waves"] if wave["verdict"] == "refuse")
    assert refused["rungs"] and all(rung["available_bytes"] == 300 << 20 for rung in refused["rungs"])
    assert refused["refusal"]["shortfall_bytes"] == refused["required_bytes"] - (300 << 20)
    text = run(path, "--profile", profile_path, "--budget", "300MiB").stdout
    assert "cannot run 11,000 packed rows" in text and "no feasible split found" in text


def test_split_and_floor_and_multiple_are_taken(tmp_path: Path, profile_path: str) -> None:
    path = written(tmp_path, [{"requests": [{"length": 1_000}, {"length": 1_000}]}])
    options = ("--profile", profile_path, "--budget", "190MiB", "--row-multiple", "64")
    (wave,) = planned(path, *options)["waves"]
    assert (wave["verdict"], wave["packed_rows"], len(wave["children"])) == ("split", 2_048, 2)
    assert [rung["packed_rows"] for rung in wave["rungs"]] == [[1_024, 1_024]]
    (floored,) = planned(path, *options, "--floor-bytes", "1GiB")["waves"]
    assert (floored["verdict"], floored["price"]["binding_term"]) == ("refuse", "floor")


def test_no_share_runs_every_request_whole(tmp_path: Path, profile_path: str) -> None:
    options = (written(tmp_path, rollouts()), "--profile", profile_path, "--budget", "300MiB")
    shared, apart = planned(*options), planned(*options, "--no-share")
    assert (shared["share"], apart["share"]) == (True, False)
    assert all(wave["packed_rows"] == wave["logical_rows"] for wave in apart["waves"])
    assert sum(wave["logical_rows"] for wave in apart["waves"]) == sum(wave["logical_rows"] for wave in shared["waves"])
    assert len(apart["waves"]) > len(shared["waves"])


def test_cluster_reorders_and_says_how(tmp_path: Path, profile_path: str) -> None:
    lines = rollouts(2, 2)
    path = written(tmp_path, [lines[at] for at in (0, 2, 1, 3)])
    options = (path, "--profile", profile_path, "--budget", "250MiB")
    plain, clustered = planned(*options), planned(*options, "--cluster")
    assert plain["order"] is None and clustered["order"] == [0, 2, 1, 3]
    rows = [sum(wave["packed_rows"] for wave in plan["waves"]) for plan in (plain, clustered)]
    assert rows[1] < rows[0]


@pytest.mark.parametrize("law", ["logical", "packed", "frontier"])
def test_law_and_safety_are_taken(law: str, tmp_path: Path, profile_path: str) -> None:
    path = written(tmp_path, rollouts())
    plan = planned(path, "--profile", profile_path, "--budget", "1GiB", "--law", law, "--safety", "1.02")
    assert (plan["law"], plan["safety"]) == (law, "51/50")
    assert plan["waves"][0]["price"]["law"] == law


def test_profiles_of_several_signatures_are_found_by_signature(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.json"
    other = Signature(
        topology="tp1",
        group_count=1,
        request_mixes=("logits",),
        grad_modes=(False,),
        adapter_shapes=("",),
        recompute=ONE_LAYER_FULL,
    )
    save_profiles(profiles, ProfileFile(profiles={SIGNATURE: PROFILE, other: learned(rows=5)}))
    path = written(tmp_path, rollouts())
    options = (path, "--profile", str(profiles), "--budget", "1GiB")
    assert planned(*options)["waves"][0]["verdict"] == "run"
    assert planned(*options, "--topology", "tp2")["waves"][0]["verdict"] == "cold_start"
    assert planned(*options, "--recompute", "selective")["waves"][0]["verdict"] == "cold_start"
    chosen = planned(*options, "--signature", other.digest[:8])
    assert chosen["waves"][0]["price"]["binding_term"] != "cold"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_picture_is_drawn(ending: str, tmp_path: Path, profile_path: str) -> None:
    lines = [*rollouts(), {"length": 90_000}, {"length": 20}]
    picture = tmp_path / f"plan.{ending}"
    options = (written(tmp_path, lines), "--profile", profile_path, "--budget", "300MiB", "--plot", str(picture))
    result = run(*options)
    assert result.exit_code == 1 and str(picture) in result.stdout
    assert picture.stat().st_size > 5_000


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path, profile_path: str) -> None:
    options = (written(tmp_path, rollouts()), "--profile", profile_path, "--budget", "1GiB", "--plot", "plan.txtx")
    result = run(*options)
    assert result.exit_code == 2 and "cannot draw plan.txtx" in result.stderr


BAD_LINES: list[tuple[dict[str, Any], str]] = [
    ({}, "tokens: is missing: a request gives its tokens, or its length"),
    ({"tokens": "abc"}, "tokens: must be a list"),
    ({"tokens": [1, 2.5]}, "tokens: must be integers of at least 0, of 63 bits at most, got 2.5"),
    ({"tokens": [1, -2]}, "at most, got -2"),
    ({"tokens": [1, True]}, "at most, got True"),
    ({"tokens": [1, 1 << 63]}, "at most, got 9223372036854775808"),
    ({"length": -1}, "length: must be at least 0, got -1"),
    ({"length": 1 << 40}, "length: must be at most"),
    ({"length": 5, "prefix": "p"}, "prefix_length: is missing"),
    ({"length": 5, "prefix": "p", "prefix_length": 6}, "prefix_length: must be at most the length, 5, got 6"),
    ({"length": 5, "prefx": "p"}, "prefx: is not a field of this format"),
    ({"length": 5, "tokens": [1]}, "length: is not a field of this format"),
    ({"length": 5, "logits": True}, "output_bytes: must be given"),
    ({"length": 5, "output_bytes": 1.5}, "output_bytes: must be an integer"),
    ({"requests": [{"length": 5}, {"tokens": [None]}]}, "requests[1].tokens: must be integers"),
    ({"requests": {"length": 5}}, "requests: must be a list"),
    ({"requests": [{"length": 5}], "length": 5}, "length: is not a field of this format"),
    ({"length": 5, "grads": "yes"}, "grads: must be true or false"),
]


@pytest.mark.parametrize(("line", "said"), BAD_LINES, ids=[said[:30] for _, said in BAD_LINES])
def test_a_bad_line_is_named_by_file_and_line(line: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, [{"length": 5}, line])
    result = run(path, "--budget", "1GiB")
    assert result.exit_code == 2 and "Traceback" not in result.stderr and result.stdout == ""
    assert f"{path}:2:" in result.stderr and said in result.stderr


def test_bad_use_is_refused(tmp_path: Path, profile_path: str) -> None:
    path = written(tmp_path, rollouts())
    (tmp_path / "empty").write_text("")
    for arguments, said in (
        ((path,), "--budget"),
        ((path, "--budget", "60 parsecs"), "not an amount of memory"),
        ((path, "--budget", "1GiB", "--law", "murphy"), "unknown law"),
        ((path, "--budget", "1GiB", "--signature", "ab"), "give --profile too"),
        ((path, "--budget", "1GiB", "--profile", "nowhere.json"), "nowhere.json"),
        ((path, "--budget", "1GiB", "--recompute", "full/uniform/many"), "is not a mode"),
        ((path, "--budget", "1GiB", "--row-multiple", "0"), "row_multiple: must be at least 1"),
        ((str(tmp_path / "empty"), "--budget", "1GiB"), "holds no item"),
        ((str(tmp_path / "nowhere"), "--budget", "1GiB"), "nowhere"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and said in result.stderr and "Traceback" not in result.stderr, arguments


def test_one_slot_with_two_adapters_is_refused(tmp_path: Path) -> None:
    lines = [{"length": 70, "slot": "a", "adapter": "r8"}, {"length": 70, "slot": "a", "adapter": "r16"}]
    result = run(written(tmp_path, lines), "--budget", "1GiB")
    assert result.exit_code == 2
    assert "requests.jsonl:2: adapter: slot 'a' has 'r8' in an earlier request, got 'r16'" in result.stderr


def test_an_inactive_request_may_name_another_adapter(tmp_path: Path) -> None:
    lines = [{"length": 70, "slot": "a", "adapter": "r8"}, {"length": 70, "active": False, "slot": "a"}]
    assert run(written(tmp_path, lines), "--budget", "1GiB").exit_code == 0


@pytest.mark.parametrize("tokens", [NumpyTokens(), ArrayTokens()], ids=["numpy", "array"])
def test_lengths_share_what_their_prefix_says(tokens: Any, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"length": 10, "prefix": "a", "prefix_length": 6},
        {"length": 12, "prefix": "a", "prefix_length": 8},
        {"length": 12, "prefix": "b", "prefix_length": 8},
        {"length": 9},
        {"length": 9},
        {"tokens": list(range(9))},
        {"tokens": list(range(5))},
        {"length": 4_000, "active": False},
    ]
    batch = Batch(read_items(written(tmp_path, lines), tokens))
    plan = plan_batch(batch, profiles=_Everywhere(learned(rows=1_000)), available_bytes=GIB)
    assert plan.waves[0].wave.packed_rows == 6 + 4 + 6 + 12 + 9 + 9 + 9
    assert plan.waves[0].wave.logical_rows == 10 + 12 + 12 + 9 + 9 + 9 + 5


def test_recompute_modes_are_read_as_they_are_printed() -> None:
    for mode in (ONE_LAYER_FULL, NO_RECOMPUTE):
        assert parse_recompute(str(mode)) == mode
