#!/usr/bin/env bash
# Stop the HTCondor that htcondor_up.sh started, with its jobs.
FOLDER=${HTCONDOR_FOLDER:-${TMPDIR:-/tmp}/babelmill-htcondor}
pids() {  # NAME: of the programs with this name that run from the folder
  for exe in /proc/[0-9]*/exe; do
    case "$(readlink "$exe")" in "$FOLDER"/root/*/$1) basename "$(dirname "$exe")" ;; esac
  done
}
for pid in $(pids condor_master); do kill -QUIT "$pid"; done  # it ends the others at once, and these their jobs
for _ in $(seq 40); do [ "$(pids 'condor_*')" ] || break; sleep .5; done
for pid in $(pids 'condor_*'); do kill -KILL "$pid"; done
exit 0
