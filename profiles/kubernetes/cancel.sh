#!/bin/sh
# cancel.sh JOB...: deletes jobs, and the scripts that they run. Their trainings get terminationGracePeriodSeconds to save.
kubectl delete --wait=false --ignore-not-found "$@" || exit   # a job that is still there needs its script
for job; do "$(dirname "$0")/../forget_script.sh" "${job#*/}"; done
