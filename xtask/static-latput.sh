#!/bin/sh
# As cargo's RUSTC_WORKSPACE_WRAPPER: latput is linked once more, static, of the same crates that the tests are linked
# of, as `latput-static` beside cargo's own. What a guest runs is emulated, and so no start may relocate anything.
set -eu
"$@"
case " $* " in
*" --crate-name latput "*" --crate-type bin "*) ;;
*) exit 0 ;;
esac
before=
for word; do
  shift
  [ "$before" != --out-dir ] || folder=$word
  before=$word
  # With one kind of output, rustc takes the name as it is.
  case $word in --emit=*) word=--emit=link ;; esac
  set -- "$@" "$word"
done
# What it says was said by the first.
said=$("$@" -o "$folder/latput-static" -Ctarget-feature=+crt-static -Crelocation-model=static -Cstrip=symbols \
  -Clink-arg=-Wl,--icf=all 2>&1) || {
  echo "$said" >&2
  exit 1
}
