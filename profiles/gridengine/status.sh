#!/bin/sh
# status.sh JOB: prints running, success or failed. A job's script writes its exit code when it ends (jobscript.sh).
code=".snakemake/gridengine/$1.code"
told=$(qstat -j "$1" 2>&1)
case "$told" in
  *"error reason"*) qdel "$1" >/dev/null 2>&1; echo failed; exit ;;  # it could not start, and would wait for ever
  *"do not exist"*) ;;                                               # it is over
  *) echo running; exit ;;                                           # also if Grid Engine does not answer
esac
# A shared file system may show the file late; a job that was deleted or killed has none.
for _ in $(seq 30); do
  ls .snakemake/gridengine >/dev/null
  [ -s "$code" ] && break
  qacct -j "$1" 2>/dev/null | grep -q "^exit_status *137" && break
  sleep 1
done
if [ "$(cat "$code" 2>/dev/null)" = 0 ]; then echo success; else echo failed; fi
