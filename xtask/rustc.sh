#!/usr/bin/env bash
# As cargo's RUSTC_WORKSPACE_WRAPPER: one build compiles and lints each crate of ours, and documents each library.
# Each of the three by itself would compile all that it depends on.
set -euo pipefail

# It is rustc, with clippy's lints.
clippy-driver "$@" -D warnings

# The words but what comes out, and where.
rustc=$1 words=() crate='' kind='' folder='' before=''
for word in "${@:2}"; do
  case $before in
  --crate-name) crate=$word ;;
  --crate-type) kind=$word ;;
  --out-dir) folder=$word ;;
  esac
  before=$word
  case $word in
  --test | --print=* | build_script_*) exit 0 ;;
  --emit=* | --out-dir | "$folder") ;;
  *) words+=("$word") ;;
  esac
done
[ -n "$folder" ] || exit 0

[ "$kind" = bin ] || rustdoc "${words[@]}" -D warnings --out-dir "$folder/../../doc"

# latput is linked once more, static, of the crates that the tests are linked of. What a guest runs is emulated, and so
# no start may relocate anything. What it says was said above.
if [ "$crate $kind" = "latput bin" ]; then
  said=$("$rustc" "${words[@]}" --emit=link -o "$folder/latput-static" -Ctarget-feature=+crt-static \
    -Crelocation-model=static -Cstrip=symbols -Clink-arg=-Wl,--icf=all 2>&1) || {
    echo "$said" >&2
    exit 1
  }
fi
