#!/bin/sh
# properties = {properties}
# What a job runs. Grid Engine sends SIGUSR2 some seconds before it ends a job (qsub -notify, at the time limit and at
# qdel) to all processes of the job: all ignore it but a training, which saves a checkpoint and leaves a mark if it wants
# to go on. Grid Engine starts a job again that exits with 99.
trap '' USR1 USR2
rm -f ".snakemake/gridengine/$JOB_ID".*   # of the turn before, or of an earlier job with this number
minutes=$(sed -n '2s/.*"runtime": \([0-9]*\).*/\1/p' "$0")
[ -z "$minutes" ] || export BABELMILL_JOB_END=$(( $(date +%s) + 60 * minutes ))
export BABELMILL_AGAIN=".snakemake/gridengine/$JOB_ID.again"
( {exec_job} )
code=$?
[ -e "$BABELMILL_AGAIN" ] && exit 99
echo "$code" > ".snakemake/gridengine/$JOB_ID.code"
exit "$code"
