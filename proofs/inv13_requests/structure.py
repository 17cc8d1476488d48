"""Why two requests stand for any number: who reads a group's requests, from the source of `pricing.kernel.requests`."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

from pricing.kernel import requests
from proofs.solver.proof import checked


def readers_of(attribute: str, source: str) -> set[str]:
    """Names of the functions (Class.method for methods) in which `<anything>.attribute` is read."""
    found: set[str] = set()

    def visit(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{scope}.{child.name}" if scope else child.name
            if isinstance(child, ast.Attribute) and child.attr == attribute:
                found.add(inner)
            visit(child, inner)

    visit(ast.parse(source), "")
    return found


def kernel_source() -> str:
    return Path(requests.__file__).read_text()


@checked("INV-13")
def a_group_s_requests_are_read_through_its_active_filter_alone() -> str:
    readers = readers_of("requests", kernel_source())
    assert readers == {"RequestGroup.active"}, f"group.requests is read in {sorted(readers)}"
    return "group.requests is read in RequestGroup.active alone"


@checked("INV-13")
def the_active_filter_keeps_each_request_by_itself() -> str:
    """`active` is one generator over the requests with one condition, of the request alone: so it maps a concatenation
    to the concatenation, and an inactive request anywhere to nothing."""
    tree = ast.parse(kernel_source())
    group = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RequestGroup")
    active = next(node for node in group.body if isinstance(node, ast.FunctionDef) and node.name == "active")
    body = ast.unparse(active.body[-1])
    expected = "return tuple((request for request in self.requests if request.is_active))"
    assert body == expected, f"RequestGroup.active is {body!r}"
    return body


@checked("INV-13")
def what_a_request_asks_for_is_told_apart_by_its_mix() -> str:
    """Over every combination of what a request can ask for: two mixes are equal only where the requests ask alike."""
    targets: tuple[tuple[int, ...] | None, ...] = (None, (64,), (64, 2), (64, 3))
    top_ks: tuple[int | None, ...] = (None, 0, 1, 2)
    flags = tuple(product((False, True), repeat=4))
    seen: dict[str, tuple[object, ...]] = {}
    for target, top_k, (logits, hidden, routes, entropy) in product(targets, top_ks, flags):
        request = requests.RequestSpec(
            input_shape=(64,),
            target_shape=target,
            top_k=top_k,
            logits=logits,
            hidden_states=hidden,
            routes=routes,
            entropy=entropy,
        )
        wants = target, top_k, logits, hidden, routes, entropy
        other = seen.setdefault(requests.mix_key(request), wants)
        assert other == wants, f"{wants} and {other} are both {requests.mix_key(request)!r}"
    return f"{len(seen)} requests, {len(seen)} mixes"
