# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What tests of jobs share: a cluster, a small data set, submitting, waiting, comparing. Expects
# `program`. In the environment, for who runs several such tests side by side (side_by_side.py):
#   LIFE_CACHE     a folder that keeps data and the hashes of undisturbed runs for the next test
#   LIFE_KEEP      a folder for what explains a failure
#   LIFE_CLUSTER   the cluster to use, made where there is none, left for the next test where it is whole;
#   LIFE_OWNER     with the process with which that ends. Its nodes see TMPDIR.
# shellcheck disable=SC2317 # called by until_true and once

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$(realpath "$here/../..")
name=${LIFE_CLUSTER:-jobs-$$}
nodes=4
# shellcheck source=../support/expect.sh
. "$root/tests/support/expect.sh"
broken='' # what is not as it was: the next test needs another cluster
folder=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-jobs-XXXXXX")
cache=${LIFE_CACHE:-$folder}
data=$cache/data
: "${settings:=--model cnn --epochs 4 --batch 128}" # the templates' own
trap 'leave_cluster; rm -rf "$folder"' EXIT
trap 'broken=yes; exit 143' TERM

explain_failure() { tail -n 5 "$folder"/*.out >&2 2>/dev/null || true; }

# until_true SECONDS COMMAND...: asked every `pause` seconds.
until_true() {
    local end=$((SECONDS + $1))
    until "${@:2}" 2>/dev/null; do
        ((SECONDS < end)) || {
            expect_equal "within $1 s: ${*:2}" no yes
            return 0
        }
        sleep "${pause:-0.2}"
    done
}

# on HOST COMMAND...: as `run`, which looks among all processes for the cluster; tests ask many times a second.
on() {
    nsenter --target "$cluster_process" --pid --mount --net -- "$here/lib/enter" "$1" "$PWD" "${@:2}"
}

# Runs on the login node with the program on PATH. Twice as many ranks as cores: they must yield.
cluster() {
    (cd "$folder" && on head env PATH="$(dirname "$program"):$PATH" \
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

make_data() {
    [[ ! -e $data/test ]] || return 0
    mkdir -p "$data"
    pack_first 4000 train train
    pack_first 200 test t10k
}

# once FUNCTION: not by two tests at a time, of which one may find what the other has made.
once() {
    local lock
    exec {lock}>"$cache/lock"
    flock "$lock"
    "$1"
    exec {lock}>&-
}

# Nothing waits or runs, and all nodes could.
cluster_is_whole() {
    [[ -z $(cluster squeue -h) && $(cluster sinfo -h -r -o '%T %D' -p debug) == "idle $nodes" ]]
}

# What killed ranks leave on their nodes.
sweep_nodes() {
    local number
    for ((number = 1; number <= nodes; ++number)); do
        on "node$number" sh -c 'rm -rf /dev/shm/* /tmp/ompi.* /tmp/pmix*'
    done
}

find_cluster() {
    # shellcheck source=common.sh
    cluster_process=$(. "$here/common.sh" && cluster_process "$name")
    [[ -n $cluster_process ]]
}

# Whether the cluster of the test before will do.
take_cluster() {
    local end=$((SECONDS + 15))
    find_cluster || return
    until cluster_is_whole 2>/dev/null; do
        ((SECONDS < end)) || return
        sleep 0.3
    done
    sweep_nodes
}

# end_cluster: waits until nothing of it is left.
end_cluster() { "$here/down" --name "$name" 2>/dev/null || true; }

leave_cluster() {
    if [[ -z ${LIFE_CLUSTER:-} || -n $broken ]] || ((failures > 0)); then end_cluster; fi
}

# Skips as `up` does.
start_cluster() {
    local share=$folder
    [[ -z ${LIFE_CLUSTER:-} ]] || share=$TMPDIR
    take_cluster || {
        end_cluster
        "$here/up" "$nodes" --name "$name" --owner "${LIFE_OWNER:-$$}" --for 3600 --share "$share" \
            --share "$cache" --share "$(dirname "$program")" >/dev/null || exit
        find_cluster
    }
    once make_data
}

# job_code JOB: waits for its end, as all parts of it have; prints its exit code. (`sbatch --wait` looks
# after 2, 10 and 42 seconds.)
job_code() {
    until [[ -z $(cluster squeue -h -j "$1" 2>/dev/null) ]]; do sleep 0.4; done
    cluster scontrol show job "$1" | sed -n 's/.* ExitCode=\([0-9]*\):\([0-9]*\).*/\1 \2/p' |
        awk '{ code = $2 ? 128 + $2 : $1; if (code > most) most = code } END { print most + 0 }'
}

# submit_with OPTIONS TEMPLATE [WORD...]: with options of sbatch; waits; prints the job's exit code.
submit_with() {
    local job
    # shellcheck disable=SC2086 # words
    job=$(cluster sbatch --parsable $1 "$root/slurm/$2.sbatch" "${@:3}") || {
        echo "sbatch: $?"
        return 0
    }
    job_code "$job"
}

# submit TEMPLATE [WORD...]
submit() { submit_with "" "$@"; }

# parameters RUN: the hash of its newest checkpoint. RUN may be a pattern below the folder.
parameters() {
    # shellcheck disable=SC2086 # a pattern is to be expanded
    (cd "$folder" && "$program" ckpt ls $1 | awk 'END { print $NF }')
}

# The same run without SLURM, by one rank, done once for each number of steps and settings.
reference() {
    local known=$cache/parameters-${steps:-4}-${settings//[^a-z0-9]/}
    make_reference() {
        [[ ! -s $known ]] || return 0
        # shellcheck disable=SC2086 # words
        (cd "$folder" && LOCKSTEP_VIRTUAL_RANKS=8 LOCKSTEP_MAX_STEPS="${steps:-4}" \
            LOCKSTEP_EVALUATE_EVERY=never "$program" train --np 1 --data "$data/train" $settings \
            --run reference >/dev/null)
        parameters reference >"$known"
        rm -r "$folder/reference"
    }
    once make_reference
    cat "$known"
}

# keep_traces NAME: the runs' folders, what jobs wrote and what SLURM's daemons said.
keep_traces() {
    [[ -n ${LIFE_KEEP:-} ]] || return 0
    mkdir -p "$LIFE_KEEP"
    on head cp -r /run/cluster/log "$folder/slurm-log" || true
    cp -r "$folder" "$LIFE_KEEP/$1" || true
}

wait_for_queue() { until [[ -z $(cluster squeue -h) ]]; do sleep 0.5; done; }
