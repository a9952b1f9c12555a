# Runs latput with the arguments of `main`, on a host that may have none.
#
# Read by sh from stdin, whole before it begins. Then both ends speak in lines: each of this end begins with
# `latput-there`. The program comes only when a folder is known that has room for it and lets it run.
say() { echo "latput-there $*"; }

drop() {
  if [ -n "$folder" ]; then rm -rf "$folder"; fi
  folder=
}

# Makes a folder of its own below $1, with room for $size bytes, where programs may run; or says why not.
prepare() {
  why='there is no such folder'
  [ -d "$1" ] || return 1
  why='it cannot be written to'
  folder=$(mktemp -d "$1/latput-XXXXXXXX" 2>/dev/null) || { folder=; return 1; }
  why="it is full: $size bytes do not fit"
  if printf '#!/bin/sh\nexit 0\n' >"$folder/try" && [ -s "$folder/try" ] && chmod 700 "$folder/try"; then
    if ! "$folder/try"; then why='no program may run there (mounted noexec)'
    elif head -c "$size" /dev/zero >"$folder/latput"; then rm -f "$folder/try"; return 0
    fi
  fi 2>/dev/null
  drop
  return 1
}

sum() {
  sha256sum <"$1" || busybox sha256sum <"$1" || openssl dgst -sha256 -r <"$1" || shasum -a 256 <"$1"
} 2>/dev/null

main() {
  umask 077
  folder=
  trap drop EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 141' PIPE
  trap 'exit 143' TERM
  has=$(latput -V </dev/null 2>/dev/null) || has=none
  say host "$(uname -s)" "$(uname -m)" "$has"
  read -r word size || exit 1
  if [ "$word" = use ]; then exec latput "$@"; fi
  [ "$word" = bring ] || exit 1
  tried=
  for base in "${XDG_RUNTIME_DIR:-}" /dev/shm /tmp "${HOME:+$HOME/.cache}"; do
    if [ -z "$base" ]; then continue; fi
    if prepare "$base"; then break; fi
    tried="$tried $base: $why;"
  done
  if [ -z "$folder" ]; then say nowhere "$tried"; exit 1; fi
  say ready "$folder"
  # A line that is cut without a word must not keep the folder for ever.
  patience=
  if command -v timeout >/dev/null 2>&1; then patience='timeout 600'; fi
  $patience head -c "$size" 1<>"$folder/latput"
  say sum "$(sum "$folder/latput")"
  read -r word || exit 1
  [ "$word" = start ] || exit 1
  chmod 700 "$folder/latput"
  LATPUT_BROUGHT=$folder
  export LATPUT_BROUGHT
  exec "$folder/latput" "$@" # which removes the folder
}
