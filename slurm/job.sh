# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What every batch script here does: find the program, start ranks so that signals reach each of them,
# and decide what comes next from the run's own state. Included by the templates:
#   . "${LOCKSTEP_ROOT:-$SLURM_SUBMIT_DIR}/slurm/job.sh"
#   prepare "$run"
#   run_ranks mpirun lockstep train ... --run "$run"
#   settle "$run"
# LOCKSTEP_ROOT is the folder that holds slurm/: a checkout or an installation's share/lockstep.

root=${LOCKSTEP_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
# shellcheck source=env.sh
. "$root/slurm/env.sh"
for folder in "$root"/build/{dev,release}/bin "$root/bin"; do
    if [[ -x $folder/lockstep ]]; then PATH=$folder:$PATH; fi
done
if ! command -v lockstep >/dev/null; then
    echo "job.sh: error: no lockstep on PATH, nor below $root" >&2
    echo "  fix: sbatch from the checkout where it is built, or load its module" >&2
    exit 66
fi

launcher=''
# SLURM tells the script (--signal=B:USR1@N; TERM at the end of a grace), the script tells mpirun or
# srun, and these tell every rank, once, within 10 ms.
forward_signal() { [[ -z $launcher ]] || kill -USR2 "$launcher" 2>/dev/null; }
trap forward_signal USR1 USR2 TERM

# wait_for_launcher: its exit code, however many signals come meanwhile.
wait_for_launcher() {
    while wait "$launcher"; kill -0 "$launcher" 2>/dev/null; do :; done
    wait "$launcher"
}

# prepare RUN: ends the job here where its ranks would be started for nothing; tells them its end.
prepared_run='' last_start=0
prepare() {
    LOCKSTEP_DEADLINE=$(lockstep slurm prolog --run "$1") || exit
    export LOCKSTEP_DEADLINE
    prepared_run=$1
    last_start=$(cat "$1/incarnation" 2>/dev/null) || last_start=0
}

# run_has_ended: the prepared run says so of a start later than the last one.
run_has_ended() {
    local state
    state=$(cat "$prepared_run/state.json" 2>/dev/null) || return
    [[ $state =~ \"phase\":\ *\"(checkpointed|complete|failed)\" ]] || return
    [[ $state =~ \"incarnation\":\ *([0-9]+) ]] && ((BASH_REMATCH[1] > last_start))
}

# A launcher may outlive its ranks: srun over two partitions was seen to wait for itself for ever
# (22.05). It is killed after LOCKSTEP_LAUNCHER_WAIT seconds in which the run says that it has ended.
watch_launcher() {
    local ended=0 most=${LOCKSTEP_LAUNCHER_WAIT:-60} pause
    pause=$((most < 5 ? most : 5))
    trap '' USR1 USR2
    while ((ended < most)); do
        read -rt "$pause" <> <(:) || true  # a sleep that leaves no process behind
        if run_has_ended; then ended=$((ended + pause)); else ended=0; fi
    done
    echo "job.sh: warning: the run has ended and its launcher has not: killed after $ended s" >&2
    kill -KILL "$launcher"
}

# run_ranks mpirun|srun [OPTION...] COMMAND...: sets `rc`.
run_ranks() {
    case $1 in
    mpirun) "${keep_ranks[@]}" mpirun --bind-to none "${@:2}" & ;;
    srun) srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 "${@:2}" & ;;
    esac
    launcher=$!
    rc=0
    local watcher=''
    if [[ -n $prepared_run ]]; then watch_launcher & watcher=$!; fi
    wait_for_launcher || rc=$?
    launcher=''
    [[ -z $watcher ]] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null || true
}

# settle RUN: the last act, for it may be a requeue, which kills the script.
settle() {
    lockstep slurm epilog --run "$1" --rc "$rc"
    exit
}
