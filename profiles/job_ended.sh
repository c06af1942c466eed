#!/bin/sh
# job_ended.sh JOB: prints success or failed, for a job that its scheduler no longer has. The job has written its exit
# code (jobscript.sh), but a shared file system may show it late; a job that was deleted or killed has none.
code=".snakemake/jobs/$1.code"
for _ in $(seq 30); do
  ls .snakemake/jobs >/dev/null
  [ -s "$code" ] && break
  sleep 1
done
"$(dirname "$0")/forget_script.sh" "$1"
if [ "$(cat "$code" 2>/dev/null)" = 0 ]; then echo success; else echo failed; fi
