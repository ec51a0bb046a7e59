# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What up, run and down share: finding a cluster. Nothing about it is kept in files: the first process
# of a cluster is recognised by its command line, so what is dead cannot seem alive.

cluster_folder=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck disable=SC2034 # for the scripts that include this
cluster_name_pattern='^[a-z][a-z0-9-]{0,30}$'

# fail CODE WHAT FIX
fail() {
    printf 'cluster: error: %s\n  fix: %s\n' "$2" "$3" >&2
    exit "$1"
}

# Its processes' numbers, from the outermost namespace to its own.
own_process_numbers() {
    awk '/^NSpid:/ { $1 = ""; print }' "/proc/$1/status" 2>/dev/null
}

# Prints "PROCESS NAME" of every cluster that was started from here.
clusters() {
    local process words numbers depth
    depth=$(own_process_numbers self | wc -w)
    for process in /proc/[0-9]*; do
        process=${process#/proc/}
        mapfile -d '' -t words 2>/dev/null <"/proc/$process/cmdline" || continue
        [[ ${words[1]:-} == */cluster/lib/* && ${words[2]:-} == --cluster ]] || continue
        read -ra numbers < <(own_process_numbers "$process") || continue
        if ((${#numbers[@]} == depth + 1)) && [[ ${numbers[-1]} == 1 ]]; then
            echo "$process ${words[3]}"
        fi
    done
}

# The first process of cluster NAME, as this namespace counts.
cluster_process() {
    clusters | awk -v name="$1" '$2 == name { print $1; exit }'
}

need_cluster() {
    local process
    process=$(cluster_process "$1")
    [[ -n $process ]] || fail 69 "no cluster '$1' is running" \
        "$cluster_folder/up 2 --name $1"
    echo "$process"
}

# need_host NAME PROCESS HOST
need_host() {
    local names=/proc/$2/root/run/cluster/names
    grep -qxF -- "$3" "$names" || fail 69 "cluster '$1' has no host '$3'" "one of: $(paste -sd' ' "$names")"
}
