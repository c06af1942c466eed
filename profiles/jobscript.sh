#!/bin/sh
# properties = {properties}
# What a job runs with the profiles `gridengine` and `generic`. It tells a training when its time ends, and where to leave a
# mark if it wants to go on. Then the job exits with 99, and the scheduler starts it again. Otherwise it leaves its exit code
# for the profile's status command.
cd "$(expr "$PBS_O_WORKDIR" '|' .)" || exit      # PBS begins in the home folder
job=$(expr "$JOB_ID" '|' "$LSB_JOBID" '|' "$PBS_JOBID" '|' "$BABELMILL_JOB")  # Grid Engine, LSF, PBS, what you set
mkdir -p .snakemake/jobs
rm -f ".snakemake/jobs/$job.again" ".snakemake/jobs/$job.code"  # of the turn before, or of an earlier job with this number
minutes=$(sed -n 's/.*"runtime": \([0-9]*\).*/\1/p' <<'PROPERTIES'
{properties}
PROPERTIES
)
[ -z "$minutes" ] || export BABELMILL_JOB_END=$(( $(date +%s) + 60 * minutes ))
export BABELMILL_AGAIN=".snakemake/jobs/$job.again"
# A training saves when it gets a signal, so this script must outlive it. Grid Engine sends USR1 or USR2 to all processes:
# the others ignore it. Other schedulers send TERM, some of them to this script alone, which passes it on.
trap '' USR1 USR2
( trap : TERM INT; {exec_job} ) &
child=$!
trap 'trap : TERM; [ "$(cut -d" " -f5 /proc/$$/stat)" != $$ ] || kill -TERM 0' TERM
trap : INT
while :; do
  wait $child
  code=$?
  kill -0 $child 2>/dev/null || break            # else a signal has ended the waiting
done
[ ! -e "$BABELMILL_AGAIN" ] || exit 99
echo "$code" > ".snakemake/jobs/$job.code"
exit "$code"
