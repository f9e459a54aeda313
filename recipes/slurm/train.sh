#!/usr/bin/env bash
# Two nodes of eight GPUs under Slurm:  sbatch recipes/slurm/train.sh scintiground/qwen3_vl_2b_lora
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
set -euo pipefail
recipe=${1:?usage: sbatch recipes/slurm/train.sh RECIPE [section.key=value ...]}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# The inner $SLURM_NODEID is expanded on each node. The same job, queued again, continues from its newest checkpoint.
srun bash -c 'exec accelerate launch --config_file recipes/accelerate/nodes2.yaml \
  --machine_rank "$SLURM_NODEID" --main_process_ip "$0" -m train "$@"' "$head" "$recipe" "${@:2}"
