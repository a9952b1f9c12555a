#!/bin/sh
#SBATCH --job-name=latput
#SBATCH --array=1-16
#SBATCH --cpus-per-task=1
#SBATCH --requeue
# sbatch slurm.sh, in a folder that all nodes see. A task that is requeued resumes.
exec latput run plan.toml --on sim:server-10g \
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" -o "part$SLURM_ARRAY_TASK_ID.db"
