#!/usr/bin/env bash
# Trains one run of convergence.toml twice on this machine with deterministic kernels, once whole and once stopped in its
# middle and gone on with, and says whether both end alike.
#
#   examples/h200/resume.sh OUT
#
# PYTHON and CAMPAIGN as in run.sh. Written into OUT: both runs' tables, and resume.txt. Ends with 4 if a number differs.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: examples/h200/resume.sh OUT}
python=${PYTHON:-$(command -v python3)}
driver=${CAMPAIGN:-$python}
recipe=${RECIPE:-packed4-b32-c512}
run=baseline/run/$recipe/s45
export CAMPAIGN_REGISTRY=${CAMPAIGN_REGISTRY:-build/tried-out.jsonl}
mkdir -p build "$out"
test -e build/corpus/train.bin || "$driver" examples/tinylm/prepare_corpus.py --out build/corpus
used=examples/h200/.resume.toml
trap 'rm -f "$used"' EXIT
sed -e "s|^python = .*|python = \"$python\"|" -e 's|^fixed = {|fixed = { deterministic = true,|' examples/h200/convergence.toml >"$used"
campaign() { "$driver" -c 'from campaign.cli.main import run; run()' "$@"; }
submit() { campaign submit --home "$1" --cluster local --yes "${@:2}"; }
for home in build/whole build/cut; do
    test ! -e $home || chmod -R u+w $home
    rm -rf $home
    campaign freeze "$used" --home $home
    submit $home --only "baseline/pilot/$recipe" --wait
done
submit build/whole --only "$run" --wait
submit build/cut --only "$run"
until ls -d build/cut/attempts/"$run"/1/segments/1/checkpoints/[1-9]* >/dev/null 2>&1; do sleep 0.2; done
sleep "${CUT_AFTER_S:-3}"
campaign cancel --yes --home build/cut --reason "to see whether the run goes on as the same training"
submit build/cut --only "$run" --wait
for home in whole cut; do
    cp build/$home/attempts/"$run"/1/segments/*/convergence.csv "$out/$home.convergence.csv"
    cp build/$home/attempts/"$run"/1/segments/*/curves.csv "$out/$home.curves.csv"
done
{
    campaign show "$run" --home build/cut | grep -E '^(attempt|  run:|  checkpoints:)'
    "$python" - "$out/whole.convergence.csv" "$out/cut.convergence.csv" <<'END'
import csv
import sys

whole, cut = (next(csv.DictReader(open(path))) for path in sys.argv[1:])
for column in ("final_loss", "target_tokens", "validation_tokens", "updates", "segments"):
    print(column, whole[column], cut[column])
END
    cmp "$out/whole.curves.csv" "$out/cut.curves.csv" || exit 4
    echo "curves.csv: identical"
} | tee "$out/resume.txt"
