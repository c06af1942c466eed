#!/bin/sh
# status.sh JOB: prints running, success or failed.
told=$(bjobs -noheader -o stat "$1" 2>&1)
case "$told" in
  DONE | EXIT | *"is not found"*) exec "$(dirname "$0")/../job_ended.sh" "$1" ;;
  *) echo running ;;   # also if LSF does not answer
esac
