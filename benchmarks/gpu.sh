#!/usr/bin/env bash
# The steps of benchmarks/gpu.py, each under its own time limit: one that hangs costs only itself. A table comes last.
#
#   bash benchmarks/gpu.sh --out DIR [--limit SECONDS] [OPTIONS of gpu.py] [STEP...]
#
# --limit is of all steps together (default: none): a step gets what is left, and none begins in the last 10 seconds.
# With --cpu they have twenty times as long. Without steps: all, in the order of their worth. PYTHON names the interpreter (default: python3).
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} out='' limit=0 times=1 options=() steps=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2 && shift ;;
    --limit) limit=$2 && shift ;;
    --cpu) options+=("$1") times=20 ;;
    --*) options+=("$1" "$2") && shift ;;
    *) steps+=("$1") ;;
  esac
  shift
done
[ -n "$out" ] || { echo "usage: bash benchmarks/gpu.sh --out DIR [OPTIONS] [STEP...]" >&2; exit 2; }
[ ${#steps[@]} -gt 0 ] || steps=(probe import methods encode train share search headline scores oom sticky kill)
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1

own_limit() {
  case $1 in
    headline) echo 330 ;;
    kill) echo 200 ;;
    train | share) echo 150 ;;
    methods) echo 120 ;;
    *) echo 90 ;;
  esac
}

for step in "${steps[@]}"; do
  seconds=$((times * $(own_limit "$step")))
  if [ "$limit" -gt 0 ] && [ $((limit - SECONDS)) -lt "$seconds" ]; then seconds=$((limit - SECONDS)); fi
  if [ "$seconds" -lt 10 ]; then
    echo "$step: no time left"
    continue
  fi
  timeout -k 15 "$seconds" "$python" benchmarks/gpu.py "$step" --out "$out" "${options[@]}" > >(tee -a "$out/log") 2>&1
  code=$?
  [ "$code" -eq 0 ] || echo "$step: ended with $code (124: after its $seconds s)"
done
"$python" benchmarks/gpu.py table --out "$out"
