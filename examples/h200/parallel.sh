#!/usr/bin/env bash
# Trains the same model with one process and with two on this machine's GPUs, and says whether the losses agree; then runs
# the campaign parallel.toml, which measures both.
#
#   examples/h200/parallel.sh OUT
#
# PYTHON and CAMPAIGN as in run.sh. Written into OUT: losses.txt, and what run.sh leaves. Ends with 4 if losses differ by
# more than 0.001.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: examples/h200/parallel.sh OUT}
python=${PYTHON:-$(command -v python3)}
driver=${CAMPAIGN:-$python}
export NCCL_NVLS_ENABLE=0 # see parallel.toml
mkdir -p build "$out"
test -e build/corpus/train.bin || "$driver" examples/tinylm/prepare_corpus.py --out build/corpus
train() {
    "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" examples/tinylm/train.py --backend native \
        --device cuda --data build/corpus size=20m batch=32 context=512 accumulation=2 deterministic=true \
        updates_total=100 log_every=10 | grep -v targets/s
}
for processes in 1 2; do
    echo "processes: $processes"
    train $processes
done | tee "$out/losses.txt"
"$python" - "$out/losses.txt" <<'CHECK'
import re
import sys

one, two = ([float(text) for text in re.findall(r"(?:loss|validation) (\S+)", part)] for part in open(sys.argv[1]).read().split("processes:")[1:])
differences = [abs(a - b) for a, b in zip(one, two, strict=True)]
print(f"{len(one)} losses, largest difference {max(differences):g}")
sys.exit(0 if all(difference <= 1e-3 for difference in differences) else 4)  # one that is no number is not
CHECK
PYTHON=$python CAMPAIGN=$driver examples/h200/run.sh "$out" parallel.toml
