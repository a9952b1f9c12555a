# To be sourced: packages of Debian that are unpacked into a folder and not installed.

# private_apt WORK STATUS LINE...: sets `apt` to an apt-get with the sources of these lines and with its state in WORK. STATUS is
# the list of packages that count as installed.
private_apt() {
  local work=$1 status=$2
  shift 2
  mkdir -p "$work"/{lists,archives}/partial "$work/parts"
  printf '%s\n' "$@" >"$work/list"
  apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/list" -o "Dir::Etc::sourceparts=$work/parts"
    -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$status" -o "Dir::Cache::archives=$work/archives"
    -o "Dir::Cache::pkgcache=$work/packages.bin" -o "Dir::Cache::srcpkgcache=$work/sources.bin"
    -o APT::Sandbox::User=root -o Acquire::Languages=none)
}
