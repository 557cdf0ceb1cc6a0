#!/usr/bin/env bash
# Installs the commit in ~/distilbench.bundle as ~/distilbench, with a Python environment of its own (~/distilbench/.venv),
# and puts that and ~/distilbench.env at the top of ~/.bashrc. `ray up` runs it on every node; run again, it takes seconds.
set -euo pipefail
cd

PYTHON=$(command -v python3.11 || true)
if ! command -v git >/dev/null || ! command -v make >/dev/null || ! "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null; then
  cloud-init status --wait >/dev/null 2>&1 || true # a fresh node's own set-up holds apt's lock
  sudo apt-get -q update
  sudo apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends git make python3-venv
fi

git init -q distilbench
cd distilbench
git fetch -q ~/distilbench.bundle HEAD
git checkout -q --force --detach FETCH_HEAD

if [ -z "$PYTHON" ] && [ ! -e .venv/installed ]; then # the tested version, where the system has another
  [ -x ~/.uv/bin/uv ] || { python3 -m venv ~/.uv && ~/.uv/bin/pip install --quiet uv; }
  ~/.uv/bin/uv python install --quiet 3.11
  PYTHON=$(~/.uv/bin/uv python find 3.11)
fi
# A node with a GPU takes PyTorch's CUDA build and faiss-gpu by itself (Makefile).
command -v nvidia-smi >/dev/null || export TORCH_INDEX="${TORCH_INDEX-https://download.pytorch.org/whl/cpu}"
make .venv/installed PYTHON="${PYTHON:-python3.11}"

line='[ -e ~/distilbench.env ] && . ~/distilbench.env; PATH=~/distilbench/.venv/bin:$PATH'
touch ~/.bashrc # sed's "1i" needs a line to stand before
[ -s ~/.bashrc ] || echo >~/.bashrc
grep -q distilbench.env ~/.bashrc || sed -i "1i $line" ~/.bashrc # first: what follows may leave early
