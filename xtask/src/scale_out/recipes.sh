#!/usr/bin/env bash
# Runs one recipe of docs/scale-out.md, or a check that needs the same tools, in the working folder: `recipes.sh RECIPE`.
# The step `scale-out` of CI starts it with latput and the Python packages on PATH, first with `whole`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
examples=$(cd "$here/../../../examples" && pwd)
start=$PWD

fail() {
  echo "$*" >&2
  exit 1
}

# A folder of its own, with the example's files.
enter() {
  mkdir "$1"
  cp "$examples"/scale-out/* "$1"
  cd "$1"
}

# The rows of all.db must be the bytes of one run of the whole plan.
check_whole() {
  latput report all.db --format csv | cmp - "$start/one.csv" >&2
}

# Merges the results of the shards, which must be one run.
check_parts() {
  latput merge "$@" -o all.db >/dev/null
  check_whole
}

# Checks a manifest by the schema of Kubernetes, and reads into `lines` what a script of Python prints of it.
read_manifest() {
  kubernetes-validate --strict "$1" >&2
  local printed
  printed=$(python3 -c "import sys, yaml
it = yaml.safe_load(open(sys.argv[1]))['spec']
[pod] = it['template']['spec']['containers']
print($2, *pod['args'], sep='\n')" "$1")
  mapfile -t lines <<<"$printed"
}

case $1 in
whole)
  cp "$examples/scale-out/plan.toml" .
  latput run plan.toml --on sim:server-10g -o one.db >/dev/null
  latput report one.db --format csv >one.csv
  ;;
parallel)
  enter parallel
  parallel --jobs 2 'latput run plan.toml --on sim:server-10g --shard {}/16 -o part{}.db' ::: {1..16} >/dev/null
  check_parts part{1..16}.db
  ;;
slurm)
  # The array of tasks, on a Slurm in namespaces of its own. Its daemons end with them.
  enter slurm
  unshare --net --uts --mount --pid --fork --kill-child --mount-proc timeout 120 sh "$here/slurm.sh" >/dev/null
  check_parts part{1..16}.db
  ;;
snakemake)
  enter snakemake
  snakemake --cores 2 --quiet all
  check_whole
  made=$(stat -c %y all.db)
  # A second start must find nothing to do.
  snakemake --cores 2 --quiet all
  [ "$(stat -c %y all.db)" = "$made" ] || fail "a finished sweep was merged again"
  ;;
kubernetes)
  # The arguments of each pod, by latput.
  enter kubernetes
  read_manifest kubernetes-job.yaml "it['completions']"
  pods=${lines[0]} words=("${lines[@]:1}") mark='$(JOB_COMPLETION_INDEX)'
  for ((index = 0; index < pods; index++)); do
    latput "${words[@]//"$mark"/$index}" >/dev/null
  done
  # shellcheck disable=SC2046
  check_parts $(seq -f 'part%g.db' 0 $((pods - 1)))
  ;;
daemon-set)
  # The arguments start the daemon, with the capability that it has and no other, on an interface of that name in
  # namespaces of its own.
  read_manifest "$examples/kubernetes/moderate-daemonset.yaml" \
    "pod['env'][0]['value'], ''.join(',+' + right.lower() for right in pod['securityContext']['capabilities']['add'])"
  interface=${lines[0]} rights=${lines[1]} words=("${lines[@]:2}") mark='$(INTERFACE)'
  [[ " ${words[*]} " == *" $mark "* ]] || fail "the daemon set does not name its interface: ${words[*]}"
  words=("${words[@]//"$mark"/$interface}")
  unshare --net --mount sh -c "mount -t tmpfs tmpfs /run && ip link set lo up && \
    ip link add $interface type veth peer name p0 && ip link set p0 up && ip link set $interface up && \
    ethtool -K $interface gro on && \
    exec setpriv --bounding-set=-all$rights --inh-caps=-all$rights latput ${words[*]} --for 2s" >/dev/null
  ;;
alerts)
  # The rules by Prometheus' own program, with when each comes. Tests of `fleet` and `moderate` ask whether every metric is one
  # of ours.
  cd "$examples/grafana"
  promtool check rules rules.yml
  promtool test rules rules-test.yml
  ;;
optuna)
  # A search by Optuna, whose winner must be confirmed as better than today's setting.
  python3 "$examples/search/optuna_search.py" 12 "$examples/search/plan.toml" --on sim:server-10g -o found.db >/dev/null
  latput report found.db >found.txt
  grep -q 'is proven better' found.txt || fail "no winner is confirmed: $(cat found.txt)"
  ;;
*) fail "there is no recipe $1" ;;
esac
