#!/bin/sh
# status.sh JOB: prints running, success or failed.
told=$(condor_q "$1" -format '%d' JobStatus 2>&1) || { echo running; exit; }   # HTCondor does not answer
case "$told" in
  "" | 3 | 4) exec "$(dirname "$0")/../job_ended.sh" "$1" ;;   # gone, removed or completed
  5) "$(dirname "$0")/cancel.sh" "$1" >/dev/null 2>&1; echo failed ;;  # held: it would wait for ever (condor_history JOB -af HoldReason)
  *) echo running ;;
esac
