#!/usr/bin/env bash
# Runs a campaign of this folder on this machine and leaves what is worth keeping in a folder.
#
#   examples/h200/run.sh OUT [CONFIG]
#
# CONFIG is a file of this folder, numerical.toml if none is given. PYTHON is the interpreter of both sides and of the harness
# (torch for CUDA); CAMPAIGN the driver's own interpreter, which may be the same. Written into OUT: the home's documents,
# receipts and tables without canonical inputs and saved models, the report, and measured.json if there are cases. The home
# itself stays in build/h200; rerun.sh looks for it there. A home that is there already is gone on with if RESUME is set.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: examples/h200/run.sh OUT [CONFIG]}
config=${2:-numerical.toml}
python=${PYTHON:-$(command -v python3)}
driver=${CAMPAIGN:-$python}
home=build/h200
export CAMPAIGN_REGISTRY=${CAMPAIGN_REGISTRY:-build/tried-out.jsonl}
test -e "examples/h200/$config" || { echo "run.sh: there is no examples/h200/$config" >&2; exit 2; }
mkdir -p build "$out"
test -e build/corpus/train.bin || "$driver" examples/tinylm/prepare_corpus.py --out build/corpus
campaign() { "$driver" -c 'from campaign.cli.main import run; run()' "$@"; }
if test -z "${RESUME:-}"; then
    test ! -e $home || chmod -R u+w $home
    rm -rf $home
    used=examples/h200/.$config
    sed "s|^python = .*|python = \"$python\"|" "examples/h200/$config" >"$used"
    trap 'rm -f "$used"' EXIT
    campaign freeze "$used" --home $home
    campaign freeze --candidate --config "$used" --home $home
fi
campaign submit --home $home --cluster local --wait --yes || test $? -eq 4
campaign report --home $home --exit-zero || true
if ls -d $home/attempts/baseline/control-case >/dev/null 2>&1; then
    "$python" tools/measure_cases.py $home --out "$out/measured.json" || echo "measure_cases: not within its limits"
fi
tar -czf "$out/home.tar.gz" --exclude=inputs --exclude='*.sqlite' --exclude='checkpoints/*/files' -C build h200
