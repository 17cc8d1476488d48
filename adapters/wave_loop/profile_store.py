"""What was learned, kept between runs: one profile a memory signature, on the environment they were learned in.

The file is `formats.profile_file`'s. It is read at the start, and every save joins what is known here with what others
wrote in the meantime (`kernel.merge`, under a lock): several ranks may share one file. A file of another environment is
refused with a reason and replaced by the first save. One that is damaged, or of another schema version, is refused and
kept aside by it (`NAME.damaged`). The run then starts cold.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pricing import Profile, Signature
from pricing.formats.files import real_target
from pricing.formats.profile_file import ProfileFile, load_profiles, merge_profiles
from pricing.kernel.errors import PricingError
from pricing.kernel.forecast import Forecast, ForecastOf
from pricing.kernel.made_gradients import is_together
from pricing.kernel.splits import SplitKey, merge_splits
from pricing.text import visible

_log = logging.getLogger(__name__)


class ProfileStore(Mapping[Signature, Profile]):
    """Profiles by signature. `path` None keeps them in memory only. What was learned of waves together with the
    gradients they make (`pricing.kernel.made_gradients`) is found by its signature, kept in the file, and not listed.

    forecasts: what first waves may be priced by, from the file; each says what it is of, so another environment does
    not keep them out. refusal: why a file that was there is not used, or None. started_warm: whether profiles were
    read. failures: saves that could not be written.
    """

    def __init__(self, path: str | Path | None, environment: Mapping[str, str]) -> None:
        self.path = None if path is None else Path(path)
        self.environment = dict(environment)
        self.refusal: str | None = None
        self.failures = 0
        self._is_failing = False
        self._profiles: dict[Signature, Profile] = {}
        self._splits: dict[SplitKey, int] = {}
        self.forecasts: Mapping[ForecastOf, Forecast] = {}
        if self.path is not None and os.path.lexists(self.path):
            self._load(self.path)
        self.started_warm = bool(self._profiles)

    def __getitem__(self, signature: Signature) -> Profile:
        return self._profiles[signature]

    def __iter__(self) -> Iterator[Signature]:
        return (signature for signature in self._profiles if not is_together(signature))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def put(self, signature: Signature, profile: Profile) -> None:
        """Replace what is known of `signature`, in memory."""
        self._profiles[signature] = profile

    @property
    def splits(self) -> Mapping[SplitKey, int]:
        """Measured peaks of waves that ran as sub-forwards, in bytes."""
        return self._splits

    def note_split(self, key: SplitKey, peak_bytes: int) -> None:
        """An identical split will cost at least what this one was seen to, in memory."""
        self._splits = merge_splits(self._splits, {key: peak_bytes})

    def save(self) -> None:
        """Write the file, whole or not at all, joined with what it holds by now. What cannot be written (a full disk, a
        lock held elsewhere, something that is no file) is no reason to stop training: it is logged once, until it works
        again, counted in `failures`, and everything is in the next save."""
        if self.path is None or not self._profiles:
            return
        known: dict[Signature | None, Profile] = dict(self._profiles.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            contents = ProfileFile(
                profiles=known, environment=self.environment, splits=self._splits, forecasts=self.forecasts
            )
            merged = merge_profiles(self.path, contents)
        except OSError as error:
            self._note_failure(error)
            return
        self._is_failing = False
        if merged.aside is not None:
            _log.warning("the profiles that could not be read are kept in %s", ascii(str(merged.aside)))
        self._profiles = {key: profile for key, profile in merged.contents.profiles.items() if key is not None}
        self._splits = dict(merged.contents.splits)

    def _note_failure(self, error: OSError) -> None:
        self.failures += 1
        if not self._is_failing:
            text = "the profiles could not be saved to %s: %s (said once; tried again at every save)"
            _log.error(text, ascii(str(self.path)), error.strerror or error)
        self._is_failing = True

    def _load(self, path: Path) -> None:
        try:
            contents = load_profiles(real_target(path))
        except (PricingError, OSError) as error:
            self._refuse(str(error))
            return
        self.forecasts = contents.forecasts
        if not contents.has_readings:
            return
        differing = sorted(
            name
            for name in self.environment.keys() | contents.environment.keys()
            if self.environment.get(name) != contents.environment.get(name)
        )
        if differing:
            self._refuse(
                "learned in another environment: " + _differences(contents.environment, self.environment, differing)
            )
            return
        self._profiles = {key: profile for key, profile in contents.profiles.items() if key is not None}
        self._splits = dict(contents.splits)

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        _log.warning("profiles in %s are not used: %s", ascii(str(self.path)), visible(reason))


MOST_DIFFERENCES_NAMED = 6


def _differences(there: Mapping[str, str], here: Mapping[str, str], names: Sequence[str]) -> str:
    """What differs, by name: `config.intermediate_size: file 32, here 4096`."""
    named = [
        f"{name}: file {there.get(name, 'unknown')}, here {here.get(name, 'nothing of that name')}"
        for name in names[:MOST_DIFFERENCES_NAMED]
    ]
    more = len(names) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")
