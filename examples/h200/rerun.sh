#!/usr/bin/env bash
# Runs every completed case of the home that run.sh left once more, and says whether the numbers are the same.
#
#   examples/h200/rerun.sh OUT
#
# CAMPAIGN as in run.sh. What `campaign rerun` prints of all cases goes into OUT/rerun.txt. Ends with 4 if a number differs.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: examples/h200/rerun.sh OUT}
driver=${CAMPAIGN:-${PYTHON:-$(command -v python3)}}
home=build/h200
mkdir -p "$out"
campaign() { "$driver" -c 'from campaign.cli.main import run; run()' "$@"; }
cases=$(cd $home/attempts && ls -d baseline/control-case/* ./*/case/* 2>/dev/null | sed 's|^\./||')
test -n "$cases" || { echo "rerun.sh: $home has no cases; run.sh comes first" >&2; exit 2; }
rerun_all() {
    local slot code ending=0
    for slot in $cases; do
        code=0
        campaign rerun "$slot" --home $home || code=$?
        test $code -eq 0 || test $ending -gt 0 -a $code -eq 4 || ending=$code
    done
    return $ending
}
rerun_all 2>&1 | tee "$out/rerun.txt"
