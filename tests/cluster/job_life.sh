# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What tests of jobs share: a cluster of their own, a small data set, submitting, waiting, comparing.
# Expects `here`, `root` and `program`. In the environment: LIFE_CACHE, a folder that keeps data and the
# hashes of undisturbed runs for the next call; LIFE_KEEP, a folder for what explains a failure.

name=jobs-$$
failures=0
folder=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-jobs-XXXXXX")
cache=${LIFE_CACHE:-$folder}
data=$cache/data
: "${settings:=--model cnn --epochs 4 --batch 128}" # the templates' own
trap '"$here/down" --name "$name" 2>/dev/null || true; rm -rf "$folder"' EXIT

expect_equal() {
    [[ $2 == "$3" ]] && return
    printf '%s: %s\n  expected: %s\n  is:       %s\n' "${0##*/}" "$1" "$3" "$2" >&2
    tail -n 5 "$folder"/*.out >&2 2>/dev/null || true
    failures=$((failures + 1))
}

# expect_match WHAT TEXT PATTERN
expect_match() { [[ $(tr '\n' ' ' <<<"$2") =~ $3 ]] || expect_equal "$1" "$2" "a match of $3"; }

# Runs on the login node with the program on PATH. Twice as many ranks as cores: they must yield.
cluster() {
    (cd "$folder" && "$here/run" --name "$name" env PATH="$(dirname "$program"):$PATH" \
        OMPI_MCA_mpi_yield_when_idle=1 LOCKSTEP_VIRTUAL_RANKS=8 LOCKSTEP_MAX_STEPS="${steps:-4}" \
        LOCKSTEP_EVALUATE_EVERY=never DATA="$data" LOCKSTEP_ROOT="$root" "$@")
}

# pack_first COUNT KIND FILES: the first images and labels of Fashion-MNIST, packed as $data/KIND.
pack_first() {
    local source=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist} size
    size=$(printf '\\x%02x\\x%02x' $(($1 / 256)) $(($1 % 256)))
    # A pipe that is closed early is no failure here.
    set +o pipefail
    { printf "\x00\x00\x08\x03\x00\x00$size\x00\x00\x00\x1c\x00\x00\x00\x1c" &&
        zcat "$source/$3-images-idx3-ubyte.gz" 2>/dev/null | tail -c +17 | head -c $(($1 * 784)); } >"$folder/images.idx"
    { printf "\x00\x00\x08\x01\x00\x00$size" &&
        zcat "$source/$3-labels-idx1-ubyte.gz" 2>/dev/null | tail -c +9 | head -c "$1"; } >"$folder/labels.idx"
    set -o pipefail
    "$program" data pack --images "$folder/images.idx" --labels "$folder/labels.idx" --codec none \
        --out "$data/$2" >/dev/null
}

# start_cluster NODES: skips as `up` does.
start_cluster() {
    local status=0
    "$here/up" "$1" --name "$name" --owner $$ --for 1200 --share "$folder" \
        --share "$cache" --share "$(dirname "$program")" >/dev/null || status=$?
    if ((status)); then exit "$status"; fi
    [[ ! -e $data/test ]] || return 0
    mkdir -p "$data"
    pack_first 4000 train train
    pack_first 200 test t10k
}

# submit TEMPLATE [WORD...]: waits; prints the job's exit code.
submit() {
    local status=0
    cluster sbatch --quiet --wait "$root/slurm/$1.sbatch" "${@:2}" >/dev/null || status=$?
    echo "$status"
}

# parameters RUN: the hash of its newest checkpoint. RUN may be a pattern below the folder.
parameters() {
    # shellcheck disable=SC2086 # a pattern is to be expanded
    (cd "$folder" && "$program" ckpt ls $1 | awk 'END { print $NF }')
}

# The same run without SLURM, by one rank.
reference_parameters() {
    # shellcheck disable=SC2086 # words
    (cd "$folder" && LOCKSTEP_VIRTUAL_RANKS=8 LOCKSTEP_MAX_STEPS="${steps:-4}" \
        LOCKSTEP_EVALUATE_EVERY=never "$program" train --np 1 --data "$data/train" $settings \
        --run "reference-${steps:-4}" >/dev/null)
    parameters "reference-${steps:-4}"
}

# The same, done once for each number of steps.
reference() {
    local known=$cache/parameters-${steps:-4}
    # Another case may want the same just now.
    [[ -s $known ]] || { reference_parameters >"$known.$$" && mv "$known.$$" "$known"; }
    cat "$known"
}

# keep_traces NAME: the runs' folders, what jobs wrote and what SLURM's daemons said.
keep_traces() {
    [[ -n ${LIFE_KEEP:-} ]] || return 0
    mkdir -p "$LIFE_KEEP"
    "$here/run" --name "$name" cp -r /run/cluster/log "$folder/slurm-log" || true
    cp -r "$folder" "$LIFE_KEEP/$1" || true
}

wait_for_queue() { until [[ -z $(cluster squeue -h) ]]; do sleep 0.5; done; }
