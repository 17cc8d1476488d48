"""OpenPipe ART's planner and pricing code without the rest of the package, for tests and benchmarks.

`import art` pulls in a server stack (HTTP clients, dataframes, experiment tracking) that planning and pricing
never touch. What they need is `art.trainer_rank`, which needs PyTorch and typing_extensions.
`load_trainer_rank` imports that subpackage alone, from an unpacked wheel (`ART_SOURCE`, the directory that
holds `art/`) or from an installed distribution.

The package declares Python >= 3.12. The subpackage uses 3.12 for one thing, the syntax of type aliases and of
generic functions, so under 3.11 a source loader rewrites those lines in memory (at run time they mean the
same); all else runs as shipped.

`planning_rank` makes a real `TrainerRank` over a model that has a geometry and no weights: it plans, prices and
learns like any other, and is asked to run nothing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, Final

SOURCE_VARIABLE: Final = "ART_SOURCE"
_ALIAS: Final = re.compile(r"^(\s*)type (\w+) = ", re.MULTILINE)
_GENERIC: Final = re.compile(r"^(\s*def \w+)\[\w+\]\(", re.MULTILINE)


class ArtUnavailableError(ImportError):
    """`art.trainer_rank` cannot be imported here; the message says what is missing."""


def load_trainer_rank() -> ModuleType:
    """`art.trainer_rank`, alone. Raises `ArtUnavailableError` with the reason."""
    loaded = sys.modules.get("art.trainer_rank")
    if loaded is not None:
        return loaded
    package = _package_folder()
    try:
        importlib.import_module("torch")
        if sys.version_info < (3, 12):
            _rewrite_syntax_below(package)
        bare = ModuleType("art")
        bare.__path__ = [str(package)]
        sys.modules.setdefault("art", bare)
        return importlib.import_module("art.trainer_rank")
    except ImportError as error:
        raise ArtUnavailableError(f"art.trainer_rank needs {error.name or error}") from error


def _package_folder() -> Path:
    source = os.environ.get(SOURCE_VARIABLE)
    if source is not None:
        package = Path(source) / "art"
    else:
        try:
            package = Path(str(importlib.metadata.distribution("openpipe-art").locate_file("art")))
        except importlib.metadata.PackageNotFoundError:
            raise ArtUnavailableError(f"openpipe-art is not installed and {SOURCE_VARIABLE} is not set") from None
    if not (package / "trainer_rank" / "__init__.py").is_file():
        raise ArtUnavailableError(f"there is no art/trainer_rank under {package.parent}")
    return package


class _OlderSyntaxLoader(SourceFileLoader):
    """Compiles `type X = Y` as `X = Y` and `def f[T](` as `def f(`. Nothing is written, no cache is read."""

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()
        return compile(_GENERIC.sub(r"\1(", _ALIAS.sub(r"\1\2 = ", text)), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).setdefault("T", Any)  # the type parameter that the rewritten functions no longer bind
        super().exec_module(module)


def _rewrite_syntax_below(package: Path) -> None:
    finder = FileFinder.path_hook((_OlderSyntaxLoader, [".py"]))

    def hook(path: str) -> Any:
        if not path.startswith(str(package)):
            raise ImportError(f"{path} is not below {package}")
        return finder(path)

    sys.path_hooks.insert(0, hook)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A model's shape as far as ART's floors and layout scores read it. `gdn_layers` counts recurrent layers."""

    hidden: int = 2560
    layers: int = 32
    heads: int = 16
    query_groups: int = 4
    channels: int = 256
    ffn: int = 9216
    vocabulary: int = 151_936
    gdn_layers: int = 0
    value_heads: int = 32
    key_heads: int = 16
    key_dim: int = 128
    value_dim: int = 128
    conv_kernel: int = 4
    recompute: tuple[str | None, str | None, int | None] = ("full", "uniform", 1)
    topology: tuple[int, int, int, int] = (1, 1, 1, 1)


DEFAULT_GEOMETRY: Final = Geometry()


def planning_rank(geometry: Geometry, budget_bytes: Callable[[], int] | int = 1 << 60) -> Any:
    """ART's own `TrainerRank` over a model without weights, on the CPU, with `budget_bytes` as its free memory.

    Its topology and data-parallel position are pinned, because ART reads them from a Megatron runtime that is
    not there.
    """
    module = load_trainer_rank()
    rank = module.TrainerRank(_runtime(geometry))
    rank._topology_key = lambda: geometry.topology
    rank._dp_rank_and_size = lambda: (0, 1)
    slot = rank._slot_ref(None)
    rank._slot_ref = lambda name: slot if name is None else type(slot)(name=name)
    rank._available_memory_bytes = budget_bytes if callable(budget_bytes) else lambda: budget_bytes
    if geometry.gdn_layers:
        rank._gdn_layers = geometry.gdn_layers
    return rank


def _runtime(geometry: Geometry) -> Any:
    import torch

    config = SimpleNamespace(
        hidden_size=geometry.hidden,
        num_layers=geometry.layers,
        num_attention_heads=geometry.heads,
        num_query_groups=geometry.query_groups,
        kv_channels=geometry.channels,
        ffn_hidden_size=geometry.ffn,
        padded_vocab_size=geometry.vocabulary,
        linear_num_value_heads=geometry.value_heads,
        linear_num_key_heads=geometry.key_heads,
        linear_key_head_dim=geometry.key_dim,
        linear_value_head_dim=geometry.value_dim,
        linear_conv_kernel_dim=geometry.conv_kernel,
        recompute_granularity=geometry.recompute[0],
        recompute_method=geometry.recompute[1],
        recompute_num_layers=geometry.recompute[2],
    )

    class Weightless(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
            self.config = config
            self.decoder = torch.nn.Module()
            setattr(self.decoder, "config", config)  # noqa: B010 - a module's attribute as far as types go
            self.vocab_size = geometry.vocabulary

        def _preprocess(self, **inputs: Any) -> Any:
            raise AssertionError("a planning rank runs nothing")

    handler = SimpleNamespace(build_gdn_execution_spec=geometry.gdn_layers > 0, is_moe=False)
    return SimpleNamespace(
        provider=config, model=[Weightless()], model_support_handler=handler, optimizer=None, rank=0, world_size=1
    )
