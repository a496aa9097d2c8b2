#!/usr/bin/env bash
# Runs numerical.toml on this machine and leaves what is worth keeping in a folder.
#
#   examples/h200/run.sh OUT
#
# PYTHON is the interpreter of both sides and of the harness (torch for CUDA); CAMPAIGN the driver's own interpreter, which
# may be the same. Written into OUT: the home's documents, receipts and tables, the report, and measured.json.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: examples/h200/run.sh OUT}
python=${PYTHON:-$(command -v python3)}
driver=${CAMPAIGN:-$python}
home=build/h200
mkdir -p build "$out"
test -e build/corpus/train.bin || "$driver" examples/tinylm/prepare_corpus.py --out build/corpus
test ! -e $home || chmod -R u+w $home
rm -rf $home
sed "s|^python = .*|python = \"$python\"|" examples/h200/numerical.toml >examples/h200/.numerical.toml
trap 'rm -f examples/h200/.numerical.toml' EXIT
campaign() { "$driver" -c 'from campaign.cli.main import run; run()' "$@"; }
campaign freeze examples/h200/.numerical.toml --home $home
campaign freeze --candidate --config examples/h200/.numerical.toml --home $home
campaign submit --home $home --cluster local --wait --yes || test $? -eq 4
campaign report --home $home --exit-zero || true
"$python" tools/measure_cases.py $home --out "$out/measured.json" || echo "measure_cases: not within its limits"
tar -czf "$out/home.tar.gz" --exclude=inputs --exclude='*.sqlite' -C build h200
