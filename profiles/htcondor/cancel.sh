#!/bin/sh
# cancel.sh JOB...: removes jobs, and the scripts that they run. Their trainings get job_max_vacate_time to save.
condor_rm "$@" || exit   # a job that is still there needs its script
for job; do "$(dirname "$0")/../forget_script.sh" "$job"; done
