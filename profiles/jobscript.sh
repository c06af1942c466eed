#!/bin/sh
# properties = {properties}
# What a job runs on Grid Engine, LSF, PBS, HTCondor and Kubernetes. It tells a training when its time ends, and where to
# leave a mark if it wants to go on. Then the job exits with 99, and the scheduler starts it again. Otherwise it leaves its
# exit code for job_ended.sh.
cd "$(expr "$PBS_O_WORKDIR" '|' .)" || exit      # PBS begins in the home folder
job=$(expr "$LSB_JOBID" '|' "$PBS_JOBID" '|' "$BABELMILL_JOB" '|' "$JOB_ID")  # BABELMILL_JOB: set by the profile
export PATH="${{PATH:-/usr/local/bin:/usr/bin:/bin}}"   # HTCondor sets none
mkdir -p .snakemake/jobs
rm -f ".snakemake/jobs/$job.again" ".snakemake/jobs/$job.code"  # of the turn before, or of an earlier job with this number
minutes=$(sed -n 's/.*"runtime": \([0-9]*\).*/\1/p' <<'PROPERTIES'
{properties}
PROPERTIES
)
[ -z "$minutes" ] || export BABELMILL_JOB_END=$(( $(date +%s) + 60 * minutes ))
export BABELMILL_AGAIN=".snakemake/jobs/$job.again"
# A training saves when it gets a signal, so this script must outlive it. Grid Engine and LSF send USR1 or USR2 to all
# processes: the others ignore it. HTCondor and Kubernetes send TERM to this script alone, which passes it on.
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
case "$0" in */.snakemake/jobs/script.*) rm -f "$0" ".snakemake/jobs/$job.script" ;; esac   # HTCondor and Kubernetes run a copy
echo "$code" > ".snakemake/jobs/$job.code"
exit "$code"
