#!/bin/sh
# For all jobs: TaskProlog=/opt/grpo-watch/slurm/task-prolog.sh in slurm.conf. For one: srun --task-prolog=…/task-prolog.sh
# It runs as the job's user with the job's environment; jobs that don't set GRPO_WATCH_RUN are left alone.
"$(dirname "$0")/grpo-watch-sidecar" start
