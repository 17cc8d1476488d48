"""The verbs `learn`, `price`, `explain` and `backtest`: what they print, and that each number is the kernel's."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pricing import LAWS, Profile, required_bytes, retained_bytes
from pricing.cli import VERBS
from pricing.cli.app import pricing
from pricing.cli.wave_input import is_mix_key
from pricing.evidence.backtest import backtest
from pricing.evidence.trace import read_trace
from pricing.formats.profile_file import load_profile, load_profiles
from pricing.kernel.requests import RequestSpec, mix_key
from tests.making import a_wave

EVIDENCE = Path(__file__).parents[2] / "spec" / "evidence" / "h200"
DENSE = str(EVIDENCE / "dense-1.jsonl")


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(pricing, arguments, input=text)


def done(*arguments: str, text: str | None = None) -> Result:
    result = run(*arguments, text=text)
    assert result.exit_code == 0, result.output
    assert "Traceback" not in result.output
    return result


def document(*arguments: str, text: str | None = None) -> Any:
    return json.loads(done(*arguments, "--json", text=text).stdout)


@pytest.fixture(scope="module")
def profile_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("profiles") / "dense.json")
    done("learn", DENSE, "-o", path)
    return path


# --- learn -----------------------------------------------------------------------------------------------------------


def test_learn_writes_what_observing_every_reading_gives(profile_path: str) -> None:
    profile = load_profile(profile_path)

    assert profile.complete_readings == 55
    assert profile.largest_packed_rows == max(wave.wave.packed_rows for wave in read_trace(DENSE))


def test_learn_in_two_steps_equals_learn_in_one(profile_path: str, tmp_path: Path) -> None:
    lines = Path(DENSE).read_text().splitlines()
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("\n".join(lines[:20]))
    second.write_text("\n".join(lines[20:]))
    done("learn", str(first), "-o", str(tmp_path / "a.json"))
    done("learn", str(second), "--onto", str(tmp_path / "a.json"), "-o", str(tmp_path / "b.json"))
    done("learn", str(first), str(second), "-o", str(tmp_path / "c.json"))

    whole = Path(profile_path).read_text()
    assert (tmp_path / "b.json").read_text() == (tmp_path / "c.json").read_text() == whole


def test_learn_says_which_readings_teach_nothing(tmp_path: Path) -> None:
    counts = {"logical_rows": 0, "grad_segments": 0, "output_bytes": 0, "peak_delta_bytes": 1_000}
    readings = tmp_path / "readings.jsonl"
    readings.write_text("\n".join(json.dumps(counts | {"packed_rows": rows}) for rows in (0, 10)))
    said = done("learn", str(readings), "-o", str(tmp_path / "profile.json")).stdout

    assert "1 reading learned (1 more of no rows: they teach nothing), 1 profile" in said


@pytest.mark.parametrize("target", [None, (7,), (7, 4), (7, 4, 5)], ids=str)
def test_every_mix_key_can_be_given(target: tuple[int, ...] | None) -> None:
    for top_k, flags in itertools.product((None, 0, 8), itertools.product((False, True), repeat=3)):
        logits, hidden, routes = flags
        asked = RequestSpec(
            input_shape=(7,), target_shape=target, top_k=top_k, logits=logits, hidden_states=hidden, routes=routes
        )
        assert is_mix_key(mix_key(asked))


def test_learn_keeps_signatures_apart(tmp_path: Path) -> None:
    def reading(topology: str) -> str:
        recompute = {"granularity": "full", "method": "uniform", "num_layers": 1, "training": True}
        lists = {"request_mixes": ["target:single"], "grad_modes": [True], "adapter_shapes": []}
        signature = {"topology": topology, "group_count": 1, "recompute": recompute, **lists}
        counts = {"packed_rows": 10, "logical_rows": 10, "grad_segments": 1, "output_bytes": 0}
        peak = 1_000 if topology == "a" else 9_000
        return json.dumps({**counts, "peak_delta_bytes": peak, "footprint_bytes": peak, "signature": signature})

    readings, output = tmp_path / "readings.jsonl", str(tmp_path / "profile.json")
    readings.write_text("\n".join([reading("a"), reading("b"), reading("a")]))
    said = document("learn", str(readings), "-o", output)
    digests = {entry["signature"] for entry in said["profiles"]}

    assert said["readings"] == 3 and len(digests) == 2
    assert {key.digest for key in load_profiles(output).profiles if key is not None} == digests
    prices = {
        document("price", "--profile", output, "--signature", digest, "--packed-rows", "10", "--logical-rows", "0")[
            "required_bytes"
        ]
        for digest in digests
    }
    assert prices == {1_100, 9_900}


# --- price and explain -----------------------------------------------------------------------------------------------

ROWS = ("--packed-rows", "16_205", "--logical-rows", "109065")


@pytest.mark.parametrize("law", LAWS)
def test_price_is_the_kernels_price(law: str, profile_path: str) -> None:
    said = document("price", "--profile", profile_path, "--law", law, *ROWS)
    wave, profile = a_wave(16_205, 109_065), load_profile(profile_path)

    assert said["law"] == law and said["safety"] == "11/10"
    assert said["required_bytes"] == required_bytes(wave, profile, LAWS[law])
    assert said["retained_bytes"] == retained_bytes(wave, profile, LAWS[law])


def test_options_and_a_file_and_standard_input_are_one_wave(profile_path: str, tmp_path: Path) -> None:
    wave = {
        "packed_rows": 7_120,
        "logical_rows": 517_120,
        "grad_segments": 101,
        "output_bytes": 1 << 20,
        "floor_bytes": 3 << 30,
        "checkpoint_retained_bytes": 5,
        "segment_state_bytes": 4_292_608,
        "shortest_request": 5_120,
    }
    path = tmp_path / "wave.json"
    path.write_text(json.dumps(wave))
    options = [text for name, value in wave.items() for text in ("--" + name.replace("_", "-"), str(value))]
    options[options.index(str(1 << 20))] = "1MiB"
    options[options.index(str(3 << 30))] = "3 GiB"
    by_options = document("explain", "--profile", profile_path, *options)

    assert by_options == document("explain", "--profile", profile_path, str(path))
    assert by_options == document("explain", "--profile", profile_path, "-", text=json.dumps(wave))
    by_options = document("explain", "--profile", profile_path, *options, "--law", "warm")
    assert by_options["segment_charge_bytes"] == 101 * 4_292_608


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--grads", "none"), "grad_free"),
        (("--grads", "mixed"), "grad_free"),
        (("--shortest-request", "63"), "short_request"),
        (("--request-mix", "target:(4,)"), "request_mix"),
        (("--request-mix", "target:single", "--request-mix", "logits"), "request_mix"),
        (("--recompute", "selective"), "recompute"),
        (("--recompute", "full/uniform/2"), "recompute"),
        (("--decoder", "eval"), "recompute"),
        (("--law", "logical"), "law"),
    ],
)
def test_explain_says_why_packed_pricing_was_not_eligible(
    options: tuple[str, ...], reason: str, profile_path: str
) -> None:
    said = document("explain", "--profile", profile_path, *ROWS, *options)

    assert not said["packed_priced"]
    assert [entry["name"] for entry in said["ineligible"]] == [reason]
    assert said["logical_charge_bytes"] == 0
    assert said["ineligible"][0]["reason"] in " ".join(
        done("explain", "--profile", profile_path, *ROWS, *options).stdout.split()
    )


def test_explain_parts_add_up(profile_path: str) -> None:
    said = document("explain", "--profile", profile_path, *ROWS, "--output-bytes", "1000")
    least = min(term["model_bytes"] for term in said["terms"])
    compute = max(said["floor_bytes"], least + said["logical_charge_bytes"] + said["segment_charge_bytes"])

    assert said["compute_bytes"] == compute
    allocated = -(-11 * (said["output_bytes"] + compute) // 10)
    assert said["quantities"]["allocated"]["required_bytes"] == said["allocated_bytes"] == allocated
    assert said["quantity"] == "footprint" and not said["footprint_learned"]
    assert said["required_bytes"] == said["footprint_bytes"] == -(-4 * allocated // 3)


def test_price_for_a_person_names_the_term_that_binds(profile_path: str) -> None:
    assert "bound by" in done("price", "--profile", profile_path, *ROWS).stdout


def test_without_a_profile_the_price_is_cold_and_says_so() -> None:
    result = done("price", *ROWS, "--output-bytes", "1000")

    assert result.stdout.startswith("1467 bytes") and "bound by the footprint, cold" in result.stdout
    assert "nothing was learned yet" in result.stderr
    assert document("explain", *ROWS)["binding_term"] == "cold"
    assert Profile().is_empty


# --- backtest --------------------------------------------------------------------------------------------------------

RESULT_NAMES = {
    "trace",
    "law",
    "quantity",
    "safety",
    "scored",
    "under",
    "over_min",
    "over_median",
    "over_p95",
    "over_max",
    "over_gib_median",
}


def test_backtest_defaults_to_every_law_and_skips_the_first_wave() -> None:
    said = document("backtest", DENSE)

    assert [result["law"] for result in said["results"]] == list(LAWS)
    for result in said["results"]:
        assert set(result) >= RESULT_NAMES
        assert (result["trace"], result["safety"], result["scored"]) == (DENSE, "11/10", 54)


def test_backtest_takes_laws_safety_skip_and_order() -> None:
    said = document(
        "backtest",
        DENSE,
        "--law",
        "packed",
        "--law",
        "warm",
        "--safety",
        "1.02",
        "--skip",
        "3",
        "--order",
        "descending",
    )["results"]

    assert [(result["law"], result["safety"], result["scored"]) for result in said] == [
        ("packed", "51/50", 52),
        ("warm", "51/50", 52),
    ]
    assert said[0]["under"] > 0


def test_backtest_gives_what_the_library_gives() -> None:
    (said,) = document("backtest", DENSE, "--law", "warm", "--skip", "2")["results"]
    score = backtest(DENSE, read_trace(DENSE), LAWS["warm"], skip=2).score

    assert {name: said[name] for name in score.to_json()} == score.to_json()


def test_backtest_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "backtest.png"
    traces = [str(path) for path in sorted(EVIDENCE.glob("*-1.jsonl"))]
    said = done("backtest", *traces, "--skip", "3", "--plot", str(picture)).stdout

    for expected in ("dense-1", "moe-1", "gdn_moe-1", *LAWS, "+297.2 %", "+346.2 %", str(picture)):
        assert expected in said
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


def test_backtest_draws_a_trace_of_which_nothing_is_scored(tmp_path: Path) -> None:
    picture = tmp_path / "none.svg"
    assert run("backtest", DENSE, "--law", "warm", "--skip", "900", "--plot", str(picture)).exit_code == 1
    assert "<svg" in picture.read_text()


# --- the group -------------------------------------------------------------------------------------------------------


def test_help_lists_every_verb_without_importing_them() -> None:
    said = done("--help").stdout

    for name, verb in VERBS.items():
        assert name in said and verb.summary[:30] in said


@pytest.mark.parametrize("verb", ["learn", "price", "explain", "backtest"])
def test_help_of_a_verb_has_an_example(verb: str) -> None:
    said = done(verb, "--help").stdout

    assert "Example:" in said and f"pricing {verb} " in said and "--json" in said


def test_version() -> None:
    assert "0." in done("--version").stdout
