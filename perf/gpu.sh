#!/usr/bin/env bash
# The GPU part of the perf suite in one go, within 8 minutes on one device: python -m perf gpu.
#
#   make gpu-wheels                     where there is a network: packages that the GPU's machine may lack, 50 MB at most
#   perf/gpu.sh [--dry] [--budget S]    there: Python 3.12 with torch 2.11 and CUDA, no network; --dry needs no GPU
#
# NOT YET RUN ON A GPU: no figure of this part exists. Its dry run, on a CPU with small shapes, has run under Python 3.12
# with torch 2.11 and the packages of `make gpu-wheels` alone.
#
# OUT (default runs/gpu) gets gpu.jsonl and gpu.md, case by case; PYTHON (default python3) has torch; WHEELS (default
# perf/wheels) holds the packages. They go to a folder of their own before those of the machine; torch is never touched.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-runs/gpu}
python=${PYTHON:-python3}
wheels=${WHEELS:-perf/wheels}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if compgen -G "$wheels/*.whl" >/dev/null; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --disable-pip-version-check \
    --target "$site" "$wheels"/*.whl
else
  echo "$wheels has no wheels: the packages of this machine are used as they are" >&2
fi
export PYTHONPATH="$site:$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
# The budget lets no case begin late; this ends one that does not end.
timeout --signal=INT 460 "$python" -m perf gpu --out "$out" "$@"
