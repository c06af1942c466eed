#!/usr/bin/env bash
# Start a real SLURM on this machine: four virtual nodes, n1 to n4, with stand-in GPUs, preemption and accounting.
#
# munged, MariaDB, slurmdbd, slurmctld and two slurmd, all from Debian's packages, all configured in one folder
# ($SLURM_FOLDER). It does nothing where they run already. Needs root on Debian or Ubuntu; down.sh stops it.
# The nodes share file system and network. Partitions: cpu (the default) and gpu on n1 and n2; fragile, whose nodes a
# test may kill, and urgent, which preempts its jobs, on n3 and n4.
set -euo pipefail
FOLDER=${SLURM_FOLDER:-${TMPDIR:-/tmp}/babelmill-slurm}
NODES=4 GPUS=4 CPUS=16 MEMORY=128000

fail() { echo "error: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "a SLURM of one's own needs root; leave its tests out: make test-all ARGS='--ignore tests/slurm'"
if [ -e /etc/slurm/slurm.conf ] && [ "$(readlink /etc/slurm/slurm.conf)" != "$FOLDER/etc/slurm.conf" ]; then
  fail "this machine has a SLURM (/etc/slurm/slurm.conf); the tests start one of their own, elsewhere"
fi
if ! type -P munged mariadbd slurmdbd slurmctld slurmd >/dev/null; then # all of them
  command -v apt-get >/dev/null || fail "SLURM is not installed and there is no apt-get; leave its tests out: make test-all ARGS='--ignore tests/slurm'"
  apt-get -qq update
  # No daemon of the packages may start: they are configured for the whole machine.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends \
    slurm-wlm slurmdbd mariadb-server munge >/dev/null
fi

umask 022
mkdir -p "$FOLDER"/{etc,state,log,run,dev} /etc/slurm
alive() { # by its process id, which may be another process's by now
  [ -s "$FOLDER/run/$1.pid" ] && [ "$(cat "/proc/$(cat "$FOLDER/run/$1.pid")/comm" 2>/dev/null)" = "${1%%.*}" ]
}
put() { # a whole file at once: jobs read the configuration while a test brings a node back with this script
  cat >"$1.new"
  mv "$1.new" "$1"
}
wait_for() {
  local end=$((SECONDS + 120)) # a command that finds no server may take ten seconds to say so
  while [ $SECONDS -lt $end ]; do "$@" >/dev/null 2>&1 && return; sleep .1; done
  fail "SLURM did not start: $*; see $FOLDER/log"
}
# What a job leaves behind dies with it, as on a real cluster. linuxproc cannot do that, but works in every container.
TRACKING=linuxproc
[ -w /sys/fs/cgroup/freezer/tasks ] && TRACKING=cgroup

for i in $(seq $NODES); do
  grep -qw "n$i" /etc/hosts || echo "127.0.1.$((10 + i)) n$i" >>/etc/hosts
done
# A GPU must be a character device, and a link to one will do.
for i in $(seq 0 $((GPUS - 1))); do ln -sf /dev/null "$FOLDER/dev/gpu$i"; done

put "$FOLDER/etc/slurm.conf" <<END
ClusterName=babelmill
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
AuthType=auth/munge
# Short-lived credentials: a requeued job waits until its old one has expired.
AuthInfo=socket=$FOLDER/run/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation=$FOLDER/state
SlurmdSpoolDir=$FOLDER/spool.%n
SlurmctldPidFile=$FOLDER/run/slurmctld.pid
SlurmdPidFile=$FOLDER/run/slurmd.%n.pid
SlurmctldLogFile=$FOLDER/log/slurmctld.log
SlurmdLogFile=$FOLDER/log/slurmd.%n.log
ProctrackType=proctrack/$TRACKING
TaskPlugin=task/none
MpiDefault=none
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
GresTypes=gpu
# The nodes have as many processors and as much memory as is said below.
SlurmdParameters=config_overrides
# Everything at once: scheduling, notice of a dead node, the end of a job.
SchedulerParameters=bf_interval=2,sched_min_interval=200000,sched_interval=2
SlurmdTimeout=8
KillWait=10
OverTimeLimit=0
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStoragePass=$FOLDER/run/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
$(for i in $(seq $NODES); do
  echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.1.$((10 + i)) Port=$((17000 + i))" \
    "CPUs=$CPUS RealMemory=$MEMORY Gres=gpu:$GPUS Feature=standin"
done)
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=1-0 DefaultTime=10 PriorityTier=10
PartitionName=gpu Nodes=n[1-2] MaxTime=1-0 DefaultTime=10 PriorityTier=10
PartitionName=fragile Nodes=n[3-4] MaxTime=1-0 DefaultTime=10 PriorityTier=10
PartitionName=urgent Nodes=n[3-4] MaxTime=1-0 DefaultTime=10 PriorityTier=100 PreemptMode=OFF
END
printf 'AutoDetect=off\nName=gpu File=%s/dev/gpu[0-%d] Flags=nvidia_gpu_env\n' \
  "$FOLDER" $((GPUS - 1)) | put "$FOLDER/etc/gres.conf"
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' | put "$FOLDER/etc/cgroup.conf"
(
  umask 077
  put "$FOLDER/etc/slurmdbd.conf" <<END
AuthType=auth/munge
AuthInfo=socket=$FOLDER/run/munge.sock
DbdHost=$(hostname -s)
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
PidFile=$FOLDER/run/slurmdbd.pid
LogFile=$FOLDER/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=13306
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
END
  [ -s "$FOLDER/etc/munge.key" ] || head -c 128 /dev/urandom >"$FOLDER/etc/munge.key"
)
put "$FOLDER/etc/init.sql" <<END
CREATE DATABASE IF NOT EXISTS slurm_acct;
CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct.* TO slurm@'127.0.0.1';
END
# Linked, since Snakemake's job step drops SLURM_CONF from the environment of its inner srun.
ln -sfn "$FOLDER"/etc/{slurm,gres,cgroup,slurmdbd}.conf /etc/slurm/
unset SLURM_CONF

alive munged || munged --key-file="$FOLDER/etc/munge.key" --socket="$FOLDER/run/munge.sock" \
  --pid-file="$FOLDER/run/munged.pid" --log-file="$FOLDER/log/munged.log" --seed-file="$FOLDER/run/munged.seed"
if ! alive mariadbd; then
  [ -d "$FOLDER/mysql/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$FOLDER/mysql" \
    --skip-test-db >"$FOLDER/log/mysql-install.log" 2>&1
  setsid mariadbd --no-defaults --user=root --datadir="$FOLDER/mysql" --socket="$FOLDER/run/mysql.sock" \
    --bind-address=127.0.0.1 --port=13306 --pid-file="$FOLDER/run/mariadbd.pid" --skip-name-resolve \
    --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 --init-file="$FOLDER/etc/init.sql" \
    >"$FOLDER/log/mariadbd.log" 2>&1 </dev/null &
  disown
fi
wait_for mariadb-admin --no-defaults -h127.0.0.1 -P13306 -uslurm -pslurm ping
alive slurmdbd || slurmdbd
wait_for sacctmgr -n list cluster
[ -n "$(sacctmgr -n list cluster babelmill)" ] || sacctmgr -iQ add cluster babelmill >/dev/null
[ -n "$(sacctmgr -n list account babelmill)" ] || sacctmgr -iQ add account babelmill >/dev/null
if [ -z "$(sacctmgr -n list assoc account=babelmill user=root)" ]; then
  sacctmgr -iQ add user root account=babelmill >/dev/null
  sacctmgr -iQ modify user root set defaultaccount=babelmill >/dev/null || true
fi
alive slurmctld || slurmctld
for i in $(seq $NODES); do # a UTS namespace each, so that `hostname` says n1 or n2 there
  alive "slurmd.n$i" || unshare --uts sh -c "hostname n$i; exec slurmd -N n$i"
done
ready() { [ "$(sinfo -h -N -t idle,alloc,mix -o %N | sort -u | wc -l)" -eq $NODES ]; }
wait_for ready
echo "SLURM is up: $NODES nodes with $GPUS stand-in GPUs each ($FOLDER)"
