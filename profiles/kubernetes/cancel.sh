#!/bin/sh
# cancel.sh JOB...: deletes jobs. Their trainings get terminationGracePeriodSeconds to save.
exec kubectl delete --wait=false "$@"
