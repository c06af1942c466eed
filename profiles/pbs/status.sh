#!/bin/sh
# status.sh JOB: prints running, success or failed.
told=$(qstat -f "$1" 2>&1)
case "$told" in   # C and F: it is over, but PBS still shows it
  *"job_state = C"* | *"job_state = F"* | *"Unknown Job"* | *"has finished"*) exec "$(dirname "$0")/../job_ended.sh" "$1" ;;
  *) echo running ;;   # also if PBS does not answer
esac
