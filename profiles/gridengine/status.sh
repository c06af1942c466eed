#!/bin/sh
# status.sh JOB: prints running, success or failed.
told=$(qstat -j "$1" 2>&1)
case "$told" in
  *"error reason"*) qdel "$1" >/dev/null 2>&1; echo failed ;;        # it could not start, and would wait for ever
  *"do not exist"*) exec "$(dirname "$0")/../job_ended.sh" "$1" ;;   # it is over
  *) echo running ;;                                                 # also if Grid Engine does not answer
esac
