#!/bin/sh
# Runs `sbatch --wait slurm.sh` on a Slurm of one node, in the working folder. Needs network, UTS, process and
# mount namespaces of its own: the daemons end with it and meet no other Slurm.
set -eu
# Slurm's look-ups want an address that is not 127.0.0.1 (AI_ADDRCONFIG of getaddrinfo(3)).
ip link set lo up
ip address add 192.0.2.1/32 dev lo
hostname latput-node
here=$(pwd)
state=$here/slurm
mkdir -p "$state/ctld" "$state/node"
# A node of 16 CPUs, whatever there are: the tasks take turns on the real ones.
cat >"$state/slurm.conf" <<END
ClusterName=latput
SlurmctldHost=latput-node(192.0.2.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldPidFile=$state/ctld.pid
SlurmctldLogFile=$state/ctld.log
StateSaveLocation=$state/ctld
SlurmdPidFile=$state/node.pid
SlurmdLogFile=$state/node.log
SlurmdSpoolDir=$state/node
NodeName=latput-node NodeAddr=192.0.2.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$state/slurm.conf
slurmctld -i
slurmd -N latput-node
# A job may wait, a Slurm that does not start must not.
for _ in $(seq 60); do
  case $(timeout 2 sinfo --noheader --format %T 2>/dev/null) in
    idle) exec sbatch --wait slurm.sh ;;
  esac
  sleep 0.5
done
echo "the node is not idle after 30 s or more:" >&2
tail -n 20 "$state/ctld.log" "$state/node.log" >&2
exit 1
