# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share: where things are, how they speak. Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}
torch_version=2.11.0
torch_cached=$cache/libtorch-$torch_version
openmpi5_cached=$cache/openmpi-5.0.11
h5py_cached=$cache/h5py-3.16

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# fail CODE WHAT [FIX]: the form of the program's own errors.
fail() {
    say "error: $2"
    [[ -z ${3-} ]] || printf '  fix: %s\n' "$3" >&2
    exit "$1"
}

# children_cpu_s SHELL: seconds of processors that its ended children took, by user and system.
children_cpu_s() {
    awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.0f\n", ($14 + $15) / ticks }' "/proc/$1/stat"
}

# stage WORDS COMMAND...: runs the command, says how long it took and notes that for stage_table.
stages=()
stage() {
    local words=$1 began=$EPOCHREALTIME shell=$BASHPID cpu wall
    cpu=$(children_cpu_s "$shell")
    shift
    say "== $words"
    "$@"
    wall=$(awk "BEGIN { printf \"%.0f\", $EPOCHREALTIME - $began }")
    stages+=("$wall"$'\t'"$(($(children_cpu_s "$shell") - cpu))"$'\t'"$words")
    say "== $words: $wall s"
}

# stage_table FILE: what each stage took, in seconds, on standard output; the same for programs in FILE.
stage_table() {
    printf '%s\n' "${stages[@]}" | tee "$1" | awk -F'\t' '
        BEGIN { printf "%8s %8s  %s\n", "wall s", "CPU s", "stage" }
        { printf "%8d %8d  %s\n", $1, $2, $3; wall += $1; cpu += $2 }
        END { printf "%8d %8d  %s\n", wall, cpu, "all" }'
}

# The site's own LibTorch where LOCKSTEP_TORCH or CMAKE_PREFIX_PATH leads to one, or nothing.
site_torch() {
    local prefixes prefix folder
    if [[ -n ${LOCKSTEP_TORCH-} ]]; then
        echo "$LOCKSTEP_TORCH"
        return
    fi
    IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH-}"
    for prefix in "${prefixes[@]}"; do
        for folder in "$prefix" "$prefix/libtorch"; do
            if [[ -e $folder/lib/libtorch_cpu.so ]]; then
                echo "$folder"
                return
            fi
        done
    done
}

# mpirun refuses to run as root unless told that this is meant.
allow_mpirun_as_root() {
    ((EUID == 0)) || return 0
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    say "running as root: OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM are set for mpirun"
}
