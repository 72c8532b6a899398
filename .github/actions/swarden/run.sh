#!/usr/bin/env bash
# The steps of the action that run programs: install, drive and show. The inputs come as variables of the environment,
# so that no text of theirs becomes a part of a script.
set -euo pipefail

archive=.swarden/archive
gate=.swarden/gate
engine="${ENGINE:-}${CHECKOUT:+==checkout-main}"

install() {
  local root version
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
  # torch's CPU build is enough: set PIP_EXTRA_INDEX_URL to an index that has it, or the download is of 5 GB.
  pip install torch==2.13.0 "${SWARDEN:-$root[engine]}"
  case "$RUN" in
    release)
      version="$(pip index versions "$ENGINE" | sed -n '1s/.*(\(.*\))/\1/p')"
      output path=page.md "key=swarden-release-$ENGINE-$version" "prefix=swarden-release-$ENGINE-$version"
      ;;
    *)
      output "path=$archive" "key=$ARCHIVE-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT" "prefix=$ARCHIVE-"
      ;;
  esac
  if [ "$RUN" = night ] && [ -n "$CHECKOUT" ]; then
    swarden engines install "$engine" --from "$CHECKOUT"
  fi
}

drive() {
  case "$RUN${CHECKOUT:+ of a checkout}" in
    night*)
      swarden nightly --engine "$engine" --minutes "$MINUTES" --archive "$archive" --junit junit.xml --events events.jsonl
      ;;
    release*)
      swarden engines try "$ENGINE==latest" --minutes "$MINUTES" --page page.md
      ;;
    "change of a checkout") # the merge with the base, which is its first parent
      swarden gate --base HEAD^ --head "$CHECKOUT" --minutes "$MINUTES" --out "$gate" ${ENGINE:+--engine "$ENGINE"}
      ;;
    change) # a short night: what was open before the change does not fail the job
      swarden nightly --gate --engine "$ENGINE" --minutes "$MINUTES" --profile default --archive "$archive"
      ;;
  esac
}

show() {
  local page
  case "$RUN${CHECKOUT:+ of a checkout}" in
    release*) page=page.md ;;
    "change of a checkout") page="$gate/page.md" ;;
    *) page="$(printf '%s\n' "$archive"/nights/* | tail -n 1)/report.md" ;;
  esac
  if [ ! -e "$page" ]; then
    echo "swarden: no page was written, see the steps before" >&2
    return
  fi
  cat "$page" >> "$GITHUB_STEP_SUMMARY"
  case "$page" in
    "$gate"/*) cat "$gate/annotations.txt" ;;
    "$archive"/*) swarden report "$archive" -o report.html ;;
  esac
}

output() {
  printf '%s\n' "$@" >> "$GITHUB_OUTPUT"
}

case "$RUN" in
  night | change | release) "$1" ;;
  *) echo "swarden: run: '$RUN' is not night, change or release; correct it" >&2 && exit 2 ;;
esac
