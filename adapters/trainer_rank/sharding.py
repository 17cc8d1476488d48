"""Models sharded by `fully_shard` (FSDP2) on their layers and their root: how they are told, and what is read of them.

Every forward and backward of one gathers parameters from all ranks, so all ranks must run equally many of both, and in
each backward gradients must reach the same parameters. The loop agrees on both before each wave
(`WaveLoop.keeps_in_step`); a rank without rows runs one row whose loss is 0.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def is_sharded_whole(model: nn.Module) -> bool:
    """Whether the model itself went through `fully_shard`, by the name of the class that this gives it."""
    return _is_fsdp(model)


def shards_of(model: nn.Module) -> int:
    """Over how many ranks its parameters are spread; 1 for one that is not sharded."""
    meshes = [mesh for value in model.parameters() if (mesh := getattr(value, "device_mesh", None)) is not None]
    return max((int(mesh.size()) for mesh in meshes), default=1)


def reshard(model: object) -> None:
    """Give back what a forward without a backward left gathered: the root's own parameters. No collective."""
    if isinstance(model, nn.Module) and _is_fsdp(model):
        root: Any = model
        root.reshard()


def sharding_facts(model: object) -> dict[str, str]:
    """What the memory of a sharded model depends on: over how many ranks it is spread, what stays gathered between a
    forward and its backward, in which dtypes it runs."""
    if not isinstance(model, nn.Module) or not _is_fsdp(model):
        return {}
    kinds: dict[str, int] = {}
    for module in model.modules():
        if _is_fsdp(module):
            sharded: Any = module
            group = getattr(sharded._get_fsdp_state(), "_fsdp_param_group", None)
            if group is not None:
                kept = "kept gathered" if group.post_forward_mesh_info is None else "resharded after forward"
                text = f"{type(module).__name__} {kept}, {group.mp_policy}, {group.offload_policy}"
                kinds[text] = kinds.get(text, 0) + 1
    spread = "; ".join(f"{text} x{count}" for text, count in sorted(kinds.items()))
    return {"sharding": f"over {shards_of(model)} ranks: {spread}"}


def _is_fsdp(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)
