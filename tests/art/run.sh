#!/bin/sh
# The tests against OpenPipe ART itself, in an environment of their own: `sh tests/art/run.sh [pytest arguments]`.
#
# ART declares Python >= 3.12, and its planner and pricing need PyTorch. Where a Python >= 3.12 has PyTorch (ART_PYTHON, default:
# python3) that one is used. Elsewhere the wheels are unpacked, not installed, and run under this Python's PyTorch: the planning
# modules are plain Python, and `tests.art.original` reads the two constructs that Python 3.11 does not know. A full PyTorch
# for 3.12 is several GB from the registry, so none is fetched here; point ART_PYTHON at one to use it.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
home=${ART_HOME:-$root/.venv/art}
python=${ART_PYTHON:-python3}

"$python" -c 'import torch, pydantic, pytest, pytest_timeout, hypothesis' 2>/dev/null || {
    "$python" -m venv "$home/venv"
    python=$home/venv/bin/python
    "$python" -m pip install --quiet torch numpy pydantic pytest pytest-timeout hypothesis
}
fetch() { # name==version: unpack the wheel for Python 3.12 into $home/site, once
    [ -e "$home/site/.$1" ] && return
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 --dest "$home/wheels" "$1"
    mkdir -p "$home/site"
    for wheel in "$home"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$home/site"; done
    touch "$home/site/.$1"
}
fetch openpipe-art==0.5.23
fetch megatron-core==0.17.0
cd "$root"
PYTHONPATH="$root:$home/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} \
    exec "$python" -m pytest --disable-warnings tests/art "$@"
