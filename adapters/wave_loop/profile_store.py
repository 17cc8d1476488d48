"""What was learned, kept between runs: one profile a memory signature, on the environment they were learned in.

The file is `formats.profile_file`'s. It is read once, at the start. A file of another environment, of another schema
version or damaged is refused with a reason and left alone until the first save; the run then starts cold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pricing import Profile, Signature
from pricing.formats.profile_file import ProfileFile, load_profiles, save_profiles
from pricing.kernel.errors import PricingError

_log = logging.getLogger(__name__)


class ProfileStore(Mapping[Signature, Profile]):
    """Profiles by signature. `path` None keeps them in memory only.

    refusal: why a file that was there is not used, or None. started_warm: whether profiles were read.
    """

    def __init__(self, path: str | Path | None, environment: Mapping[str, str]) -> None:
        self.path = None if path is None else Path(path)
        self.environment = dict(environment)
        self.refusal: str | None = None
        self._profiles: dict[Signature, Profile] = {}
        if self.path is not None and self.path.exists():
            self._load(self.path)
        self.started_warm = bool(self._profiles)

    def __getitem__(self, signature: Signature) -> Profile:
        return self._profiles[signature]

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def put(self, signature: Signature, profile: Profile) -> None:
        """Replace what is known of `signature`, in memory."""
        self._profiles[signature] = profile

    def save(self) -> None:
        """Write the file, whole or not at all. A full disk is logged: it is no reason to stop training."""
        if self.path is None or not self._profiles:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            known: dict[Signature | None, Profile] = {key: profile for key, profile in self._profiles.items()}  # noqa: C416
            save_profiles(self.path, ProfileFile(profiles=known, environment=self.environment))
        except OSError as error:
            _log.warning("the profiles could not be saved to %s: %s", self.path, error)

    def _load(self, path: Path) -> None:
        try:
            contents = load_profiles(path)
        except (PricingError, OSError) as error:
            self._refuse(str(error))
            return
        differing = sorted(
            name
            for name in self.environment.keys() | contents.environment.keys()
            if self.environment.get(name) != contents.environment.get(name)
        )
        if differing:
            self._refuse(
                "learned in another environment: "
                + ", ".join(
                    f"{name} {contents.environment.get(name, 'unknown')!r}, here {self.environment.get(name)!r}"
                    for name in differing
                )
            )
            return
        self._profiles = {key: profile for key, profile in contents.profiles.items() if key is not None}

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        _log.warning("profiles in %s are not used: %s", self.path, reason)
