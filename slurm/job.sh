# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What every batch script here does: find the program, start ranks so that signals reach each of them,
# and decide what comes next from the run's own state. Included by the templates:
#   . "${LOCKSTEP_ROOT:-$SLURM_SUBMIT_DIR}/slurm/job.sh"
#   prepare "$run"
#   run_ranks mpirun lockstep train ... --run "$run"
#   settle "$run"
# LOCKSTEP_ROOT is the folder that holds slurm/: a checkout or an installation's share/lockstep. Others are as
# submit's options: LOCKSTEP_LAUNCHER (mpirun, srun) over what the template says, LOCKSTEP_CONTAINER (an image, in
# which the ranks are started) and LOCKSTEP_CONTAINER_RUNTIME (apptainer, pyxis).

root=${LOCKSTEP_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
# number TEXT [ELSE]: TEXT if it is a number, else ELSE, or 0 without one. Bash runs what other words say when it
# calculates with them. So a word from a file, a folder's name or the environment comes through here first.
number() {
    if [[ $1 =~ ^(0|[1-9][0-9]{0,17})$ ]]; then echo "$1"; else echo "${2:-0}"; fi
}
# SLURM begins a job whose folder is not there in /tmp: its results would be lost with the node.
if [[ $PWD == /tmp && -n ${SLURM_JOB_ID:-} ]]; then
    wanted=$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %Z 2>/dev/null | head -n 1)
    : "${wanted:=${SLURM_SUBMIT_DIR:-/tmp}}"
    if [[ ! $wanted -ef /tmp ]]; then
        echo "job.sh: error: node ${SLURMD_NODENAME:-$HOSTNAME} cannot enter this job's folder '$wanted'" >&2
        echo "  why: SLURM began the job in /tmp instead, where the run would be lost" >&2
        echo "  fix: make the folder again, or submit from a folder that all nodes have" >&2
        exit 66
    fi
fi
# shellcheck source=env.sh
. "$root/slurm/env.sh"
for folder in "$root"/build/{dev,release}/bin "$root/bin"; do
    if [[ -x $folder/lockstep ]]; then PATH=$folder:$PATH; fi
done
if ! command -v lockstep >/dev/null; then
    echo "job.sh: error: no lockstep on PATH, nor below $root" >&2
    echo "  fix: sbatch from the checkout where it is built, or load its module (after sbatch --export=NONE, in the script)" >&2
    exit 66
fi

launcher='' was_signalled=''
# SLURM tells the script (--signal=B:USR1@N; TERM at the end of a grace), the script tells mpirun or
# srun, and these tell every rank, once, within 10 ms.
forward_signal() {
    was_signalled=yes
    [[ -z $launcher ]] || kill -USR2 "$launcher" 2>/dev/null
}
trap forward_signal USR1 USR2 TERM

# wait_for_launcher: its exit code, however many signals come meanwhile.
wait_for_launcher() {
    while wait "$launcher"; kill -0 "$launcher" 2>/dev/null; do :; done
    wait "$launcher"
}

# prepare RUN: ends the job here where its ranks would be started for nothing; tells them its end.
prepared_run='' last_start=0
prepare() {
    enter_container
    LOCKSTEP_DEADLINE=$(lockstep slurm prolog --run "$1") || exit
    export LOCKSTEP_DEADLINE
    prepared_run=$1
    # Failed ranks leave a word there, which counts where the launcher's exit code says less.
    LOCKSTEP_RANK_ENDS=$(realpath -ms "$1").ends-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
    export LOCKSTEP_RANK_ENDS
    rm -rf "${LOCKSTEP_RANK_ENDS%-*}"-*  # of earlier starts of this job, whose node was lost
    last_start=$(newest_start)
}

# newest_start: of the prepared run, as its file says.
newest_start() {
    if [[ -f $prepared_run/incarnation ]]; then
        number "$(head -c 20 "$prepared_run/incarnation" 2>/dev/null)"
    else
        echo 0
    fi
}

# has_setting OPTION: whether the words after the template's name say it.
has_setting() {
    local word
    for word in "${settings[@]}"; do
        if [[ $word == "$1" || $word == "$1="* ]]; then return 0; fi
    done
    return 1
}

# complete_settings DATA RUN [OPTION VALUE]...: the template's own, where `settings` does not say it. Sets `run`.
complete_settings() {
    local at data=$1
    run=$2
    shift 2
    for ((at = 0; at + 1 < ${#settings[@]}; ++at)); do
        if [[ ${settings[at]} == --run ]]; then run=${settings[at + 1]}; fi
    done
    for ((at = 0; at < ${#settings[@]}; ++at)); do
        if [[ ${settings[at]} == --run=* ]]; then run=${settings[at]#*=}; fi
    done
    # Other data have their own test data, or none.
    has_setting --data || set -- --data "$data/train" --test-data "$data/test" "$@"
    for (( ; $# > 1; )); do
        has_setting "$1" || settings+=("$1" "$2")
        shift 2
    done
    has_setting --run || settings+=(--run "$run")
}

# replace_setting OPTION VALUE: what the template is for, over the words after its name.
replace_setting() {
    local kept=() at
    for ((at = 0; at < ${#settings[@]}; ++at)); do
        case ${settings[at]} in
        "$1") at=$((at + 1)) ;;
        "$1="*) ;;
        *) kept+=("${settings[at]}") && continue ;;
        esac
        echo "job.sh: warning: $1 ${settings[at]#"$1="} gives way to the template's $2" >&2
    done
    settings=("${kept[@]}" "$1" "$2")
}

# run_has_ended: the prepared run says so of a start later than the last one.
run_has_ended() {
    local state start
    [[ -f $prepared_run/state.json ]] && state=$(head -c 65536 "$prepared_run/state.json" 2>/dev/null) || return
    [[ $state =~ \"phase\":\ *\"(checkpointed|complete|failed)\" ]] || return
    [[ $state =~ \"incarnation\":\ *([0-9]+) ]] || return
    start=$(number "${BASH_REMATCH[1]}")
    ((start > last_start))
}

# A launcher may outlive its ranks: srun over two partitions was seen to wait for itself for ever
# (22.05). It is killed after LOCKSTEP_LAUNCHER_WAIT seconds in which the run says that it has ended.
watch_launcher() {
    local ended=0 most pause
    most=$(number "${LOCKSTEP_LAUNCHER_WAIT:-60}" 60)
    pause=$((most < 25 ? (most + 4) / 5 : 5))
    trap '' USR1 USR2
    while ((ended < most)); do
        read -rt "$pause" <> <(:) || true  # a sleep that leaves no process behind
        if run_has_ended; then ended=$((ended + pause)); else ended=0; fi
    done
    echo "job.sh: warning: the run has ended and its launcher has not: killed after $ended s" >&2
    kill -KILL "$launcher"
}

# A run that saves itself ends with 75 or 130, and mpirun calls that a failure in two boxes of text.
rule=$(printf '%.0s-' {1..74})
without_save_notice() {
    local line held='' is_open='' first='Primary job +terminated normally, but|mpirun detected that one or more'
    local known="^($rule|($first).*|a non-zero exit code\\. Per user.*|the job to be terminated\\. The.*|  (Process name|Exit code): .*|)\$"
    while IFS= read -r line || [[ -n $line ]]; do
        if [[ $held == *"$rule"$'\n' && -z $is_open && $line =~ ^($first) ]]; then
            is_open=yes held+=$line$'\n'
        elif [[ -n $is_open ]]; then
            held+=$line$'\n'
            [[ $line != "$rule" ]] || is_open=''
            [[ -n $is_open || $held != *'Exit code:'* ]] || {
                if [[ $held =~ 'Exit code:'\ +(75|130)$'\n' ]]; then
                    held=$(grep -vE "$known" <<<"$held") && held+=$'\n'
                fi
                printf '%s' "$held"
                held=''
            }
        elif [[ $line == "$rule" ]]; then
            [[ $held != "$rule"$'\n' ]] || { echo "$rule" && held=''; }
            held+=$line$'\n'
        else
            printf '%s%s\n' "$held" "$line"
            held=''
        fi
    done
    printf '%s' "$held"
}

# keep_words: passes on what the launcher says, line by line, and keeps it for `lockstep logs` among the logs of the
# start that it begins: the first 5000 lines and the last 100. Before that start has begun nothing is made for them.
keep_words() {
    local line text time folder=$prepared_run/logs/i$((last_start + 1)) words='' count=0 last=()
    local host=${SLURMD_NODENAME:-$HOSTNAME}
    while IFS= read -r line || [[ -n $line ]]; do
        printf '%s\n' "$line"
        text=${line//\\/\\\\} && text=${text//\"/\\\"} && text=${text//$'\t'/\\t} && text=${text//[[:cntrl:]]/?}
        printf -v time '%(%s)T' -1
        time=${EPOCHREALTIME:-$time}
        line="{\"event\":\"launcher\",\"host\":\"$host\",\"rank\":null,\"start\":$((last_start + 1)),"
        line+="\"t\":${time/,/.},\"text\":\"$text\"}"$'\n'
        if ((++count <= 5000)); then
            words+=$line
        else
            last+=("$line")
            ((${#last[@]} <= 100)) || last=("${last[@]:1}")
        fi
        [[ ! -d $folder || -z $words ]] || { keep_in "$folder" "$words" && words=''; }
    done
    [[ -n $words || -n ${last[*]} ]] && [[ -e $prepared_run/run.json ]] || return 0
    keep_in "$folder" "$words" "${last[@]}"
}

# keep_in FOLDER TEXT...: adds to this host's file of the launcher's words, through no link of the run.
keep_in() {
    local file=$1/launcher-$host.jsonl
    [[ ! -L ${1%/*} && ! -L $1 && ! -L $file ]] || return 0
    { mkdir -p "$1" && printf '%s' "${@:2}" >>"$file"; } 2>/dev/null
}

# filter_words COMMAND...: sets `notices`, where the launcher's words go, and `filter`, the process that reads them.
filter_words() {
    exec {notices}> >(umask 077 && trap '' TERM INT HUP USR1 USR2 && "$@" >&2)
    filter=$!
}

# mpirun_words: for filter_words.
mpirun_words() {
    if [[ -z $prepared_run ]]; then without_save_notice; else without_save_notice | keep_words; fi
}

# run_ranks mpirun|srun [OPTION...] COMMAND...: sets `rc`. A killed slurmstepd leaves a socket behind that keeps the
# step of the same number, which the job's next start begins with, from being launched: the one after that can be.
# srun may say 0 then, and training always begins the run.
run_ranks() {
    local restarts
    restarts=$(number "${SLURM_RESTART_COUNT:-0}")
    launch_ranks "$@"
    if ((restarts > 0)) && [[ ${LOCKSTEP_LAUNCHER:-$1} == srun && -z $was_signalled ]] &&
        [[ $rc != 0 || " $* " == *" train "* ]] && nobody_began; then
        echo "job.sh: warning: SLURM did not launch the ranks (srun says $rc): once more" >&2
        launch_ranks "$@"
    fi
}

# nobody_began: of the prepared run's ranks, and none left a word.
nobody_began() {
    [[ -n $prepared_run && ! -e $LOCKSTEP_RANK_ENDS && $(newest_start) == "$last_start" ]]
}

# enter_container: sets `in_container`, the words before the program.
in_container=()
enter_container() {
    local runtime=${LOCKSTEP_CONTAINER_RUNTIME:-apptainer}
    [[ -n ${LOCKSTEP_CONTAINER:-} ]] || return 0
    if [[ $runtime == pyxis ]]; then
        in_container=(--container-image="$LOCKSTEP_CONTAINER" --container-mounts="$root:$root,$PWD:$PWD"
            --container-workdir="$PWD")
        return
    fi
    if ! command -v "$runtime" >/dev/null; then
        echo "job.sh: error: node ${SLURMD_NODENAME:-$HOSTNAME} has no program '$runtime'" >&2
        echo "  fix: load its module (MODULES), or ask for nodes that have it (sbatch --constraint)" >&2
        exit 66
    fi
    if [[ $LOCKSTEP_CONTAINER != *://* && ! -e $LOCKSTEP_CONTAINER ]]; then
        echo "job.sh: error: node ${SLURMD_NODENAME:-$HOSTNAME} has no image '$LOCKSTEP_CONTAINER'" >&2
        echo "  fix: name one that all nodes have: export LOCKSTEP_CONTAINER=FILE before sbatch" >&2
        exit 66
    fi
    # Ranks share memory by files in /dev/shm and memory of each other, as if there were no containers.
    export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma,knem,xpmem
    in_container=("$runtime" exec)
    [[ -z ${SLURM_JOB_GPUS:-}${SLURM_GPUS_ON_NODE:-} ]] || in_container+=(--nv)
    in_container+=(--bind "$root,$PWD" "$LOCKSTEP_CONTAINER")
}

# launch_ranks mpirun|srun [OPTION...] COMMAND...: sets `rc`.
launch_ranks() {
    local notices='' filter='' turn parts with=${LOCKSTEP_LAUNCHER:-$1} options=()
    for (( ; $# > 1; )); do
        shift
        [[ $1 == -* ]] || break
        options+=("$1")
    done
    # srun starts ranks in the first part of a job alone where nothing is said.
    parts=$(number "${SLURM_HET_SIZE:-1}" 1)
    if ((parts > 1)) && [[ $with == srun && " ${options[*]}" != *" --het-group"* ]]; then
        options+=(--het-group="$(seq -s, 0 $((parts - 1)))")
    fi
    enter_container
    set -- "${options[@]}" "${in_container[@]}" "$@"
    case $with in
    mpirun)
        filter_words mpirun_words
        "${keep_ranks[@]}" mpirun --bind-to none "$@" 2>&"$notices" {notices}>&- &
        ;;
    srun)
        if [[ -z $prepared_run ]]; then exec {notices}>&2; else filter_words keep_words; fi
        srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 "$@" 2>&"$notices" {notices}>&- &
        ;;
    *)
        echo "job.sh: error: LOCKSTEP_LAUNCHER is '$with', not mpirun or srun" >&2
        echo "  fix: unset LOCKSTEP_LAUNCHER, or export one of these before sbatch" >&2
        exit 64
        ;;
    esac
    launcher=$!
    rc=0
    [[ -z $notices ]] || exec {notices}>&-
    local watcher=''
    if [[ -n $prepared_run ]]; then watch_launcher & watcher=$!; fi
    wait_for_launcher || rc=$?
    launcher=''
    [[ -z $watcher ]] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null || true
    # What the launcher said last comes first; but what it left behind may hold its stderr for long.
    for ((turn = 0; turn < 50; ++turn)); do
        if [[ -z $filter ]] || ! kill -0 "$filter" 2>/dev/null; then break; fi
        read -rt 0.1 <> <(:) || true
    done
    ((rc == 0)) || look_for_program "$@"
}

# look_for_program [OPTION...] COMMAND...: where no rank has said why it failed, a node may lack the
# program. It says so in the ranks' place, as the launcher's exit code may be that of a rank it killed.
look_for_program() {
    while [[ ${1:-} == -* ]]; do shift; done
    nobody_began && command -v "$1" >/dev/null || return 0
    # shellcheck disable=SC2016 # expanded on each node
    timeout --kill-after=5 60 srun --overlap --mpi=none --quiet --nodes="$SLURM_JOB_NUM_NODES" \
        --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -c '
        command -v "$1" >/dev/null && exit
        mkdir -p "$LOCKSTEP_RANK_ENDS" && printf "{\"who\": \"%s\", \"exit\": 66, \"error\": \"%s\"}\n" \
            "$(hostname)" "E610: this node has no program ${1//[^[:alnum:]._\/-]/?}" \
            >"$LOCKSTEP_RANK_ENDS/node-$(hostname).json"' look "$1" || true
}

# settle RUN: the last act, for it may be a requeue, which kills the script.
settle() {
    lockstep slurm epilog --run "$1" --rc "$rc" --rank-ends "$LOCKSTEP_RANK_ENDS"
    exit
}
