#!/bin/sh
# forget_script.sh JOB: removes the copy of the script that a job of HTCondor or Kubernetes runs, once it need not start again.
link=".snakemake/jobs/$1.script"
[ -h "$link" ] && rm -f "$(readlink "$link")" "$link" ".snakemake/jobs/$1.again"
exit 0
