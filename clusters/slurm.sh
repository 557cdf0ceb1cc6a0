#!/usr/bin/env bash
# A sweep on nodes that SLURM gives: sbatch [--nodes=4 --gres=gpu:1 ...] clusters/slurm.sh sweep --method mcr2 --name first ...
#
# What follows is distilbench's command line. Submit it from the repository's root, installed there (make .venv/installed)
# on a disk that all nodes see. The whole node is taken: Ray counts its cores and ends what is left of Ray on it.
#SBATCH --job-name=distilbench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=distilbench-%j.log
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
[ -x .venv/bin/ray ] || { echo "slurm.sh: no .venv/bin/ray in $PWD; expected the repository's root, after 'make .venv/installed'" >&2; exit 2; }
[ $# -gt 0 ] || { echo "slurm.sh: expected a command of distilbench, such as: sweep --method mcr2 --name first" >&2; exit 2; }
export PATH="$PWD/.venv/bin:$PATH"

# The token stands in the home folder, which all nodes share; made once, readable by its owner alone.
export RAY_AUTH_MODE=token RAY_START_HOOK=distilbench.cluster.start_hook.no_client_server RAY_USAGE_STATS_ENABLED=0
[ -s ~/.ray/auth_token ] || (umask 077 && ray get-auth-token --generate >/dev/null)
chmod 600 ~/.ray/auth_token

# Nodes that come late are waited for; storage has what a requeued job goes on from.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT="${RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT:-600}"
read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
read -r address _ < <(getent ahostsv4 "$head") || { echo "slurm.sh: node '$head' has no IPv4 address" >&2; exit 1; }
port=$((20000 + SLURM_JOB_ID % 10000))

# Ray on every node, the command on the first one, and Ray stopped everywhere when it is done.
exec srun --cpu-bind=none --kill-on-bad-exit=1 ray symmetric-run --address "$address:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus "${SLURM_CPUS_ON_NODE:?}" --dashboard-host 127.0.0.1 -- distilbench "$@" --address "$address:$port"
