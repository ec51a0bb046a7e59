# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The ways in which a job ends, each as a case: run_case CASE. Whatever ends it, the job goes on by itself
# or when it is submitted again, and ends with the bits of a run that nobody disturbed. For life_test and
# tests/soak/slurm; includes job_life.sh. A case that breaks its cluster of four nodes says so in `broken`.
# shellcheck disable=SC2034,SC2317 # for who includes this; called by until_true

# Long enough to be disturbed, small steps: these ranks share two cores.
batch=16
settings="--model cnn --epochs 400 --batch $batch"
: "${steps:=60}"
# shellcheck source=job_life.sh
. "$(dirname "${BASH_SOURCE[0]}")/job_life.sh"

# In the order of a round: first what is said, then what is lost.
all_cases=(time-limit-{mpirun,srun} cancel-{mpirun,srun} preempt-{mpirun,srun} requeue-{mpirun,srun}
    ctrl-c-{mpirun,srun} refused missing deleted rank-killed orted-killed stepd-killed launcher-killed-{mpirun,srun}
    slurmd-killed-{mpirun,srun} cut-{mpirun,srun} stopped-{mpirun,srun} node-lost-{mpirun,srun} fewer-nodes fenced)
# A limit that is met at least once, for CI; one that is a third of what the run needs: a quarter of an hour
# where two go on at once, and nearly as many starts as a job may have.
more_cases=(limit-{mpirun,srun} third-{mpirun,srun})

# start_job CASE TEMPLATE [OPTION of sbatch...]: returns when its first steps are done; sets `job`, `run`.
start_job() {
    run=runs/$1-$RANDOM
    # shellcheck disable=SC2086 # words
    job=$(cluster env RUN="$run" LOCKSTEP_LOG_EVERY="${log_every:-1}" LOCKSTEP_CHECKPOINT_EVERY="${save_every:-10m}" \
        sbatch --parsable "${@:3}" "$root/slurm/$2.sbatch" $settings ${more_settings:-})
    until_true 90 test -e "$folder/$run/${first_sign:-metrics.jsonl}"
    until_true 90 test -s "$folder/$run/${first_sign:-metrics.jsonl}"
}

job_is_gone() { [[ -z $(cluster squeue -h -j "$job" 2>/dev/null) ]]; }
starts_are() { [[ $(cat "$folder/$run/incarnation") == "$1" ]]; }
job_is() { [[ $(cluster squeue -h -j "$job" -o %T) == "$1" ]]; }

has_steps() { (($(wc -l <"$folder/$run/metrics.jsonl") >= $1)); }
said_by_state() { grep -q "$1" "$folder/$run/state.json"; }
node2_is_down() { [[ $(cluster sinfo -h -n node2 -p debug -o %T) == down* ]]; }

# hold_until SECONDS COMMAND...: the ranks stand still meanwhile, as if the training took that much longer;
# what is sent to them they find when they go on.
hold_until() {
    local host pause=1
    for host in node1 node2; do on "$host" pkill -STOP -x lockstep-train; done
    until_true "$@"
    for host in node1 node2; do on "$host" pkill -CONT -x lockstep-train || true; done
}

# Each rank has been sent USR2, or is gone. (0x800 among the pending signals of its process.)
ranks_are_signalled() {
    local host
    for host in node1 node2; do
        # shellcheck disable=SC2016 # expanded in there
        on "$host" bash -c 'for rank in $(pgrep -x lockstep-train); do
            pending=$(sed -n "s/^ShdPnd:[[:space:]]*/0x/p" "/proc/$rank/status") || continue
            ((pending & 0x800)) || exit 1
        done' || return
    done
}

# record JOB: SLURM's own, of a job that is over: its state, how often it began again, its exit code and signal.
record() {
    cluster scontrol show job "$1" | grep -oE '\b(JobState|Restarts|ExitCode)=[^ ]+' | sed 's/.*=//' | paste -sd' '
}

# expect_bits CASE: those of the undisturbed run, and the run's word and SLURM's are that it is done.
expect_bits() {
    local pause=0.5
    until_true "${longest_s:-600}" job_is_gone
    expect_equal "parameters after $1" "$(parameters "$run")" "$(reference)"
    expect_match "state after $1" "$(cat "$folder/$run/state.json")" '"phase": *"complete"'
    expect_match "SLURM's record after $1" "$(record "$job")" '^COMPLETED [0-9]+ 0:0'
}

# expect_same_bits CASE STARTS
expect_same_bits() {
    expect_bits "$1"
    expect_equal "starts of the run after $1" "$(cat "$folder/$run/incarnation")" "$2"
}

# expect_starts CASE LEAST
expect_starts() {
    local starts
    starts=$(cat "$folder/$run/incarnation")
    ((starts >= $2)) || expect_equal "starts of the run after $1" "$starts" "$2 or more"
}

# Each sample once in each epoch, over all starts.
expect_ledger() {
    local status=0
    (cd "$folder" && "$program" data ledger "$run" >ledger.out 2>&1) || status=$?
    expect_equal "ledger of $1: $(tail -n 3 "$folder/ledger.out")" "$status" 0
}

preempt_by() { cluster sbatch --quiet -p gpu -N4 --exclusive -o "$folder/other.out" --wrap "sleep 1"; }

# steps_in LAUNCHER SECONDS: how many steps a job takes in so long, in hundreds; seen once.
steps_in() {
    local known=$cache/samples-per-s run=runs/speed-$1 steps=100
    [[ -s $known ]] || {
        # shellcheck disable=SC2086 # words
        RUN=$run LOCKSTEP_LOG_EVERY=50 submit "multi-node-$1" $settings >/dev/null
        sed -n 's/.*"samples_per_s": *\([0-9]*\).*/\1/p' "$folder/$run/metrics.jsonl" | tail -n 1 >"$known.$$"
        mv "$known.$$" "$known"
    }
    echo $((($(cat "$known") * $2 / batch / 100 + 1) * 100))
}

# time_limit_case NAME LAUNCHER SECONDS STARTS: SLURM's own limit of a minute against so many seconds of
# training, and how many starts at least that takes: some of each goes by before the first step, and the
# signal comes before the limit (six starts for 100 s, 30 s apart, on two quiet cores).
time_limit_case() {
    local limit=(-t 1 --signal=USR2@10) more_settings=--ledger longest_s=850 steps
    [[ $2 == srun ]] || limit=(-t 1 --signal=B:USR1@10)
    steps=$(steps_in "$2" "$3")
    start_job "$1" "multi-node-$2" -p short "${limit[@]}"
    expect_bits "$1"
    expect_starts "$1" "$4"
    expect_ledger "$1"
}

# SLURM's own limit, a minute, met once, on a machine of any speed: until its signal comes, the ranks stand still.
# They know no deadline, or that long a step would end the run too. The signal comes half a minute after the
# start of the job or later. The next start has more time: where the machine stands still for a minute it would
# end by its limit although the run is complete.
limit_case() {
    local limit=(-t 1 --signal=USR2@2) more_settings="--ledger --deadline 0"
    [[ $1 == srun ]] || limit=(-t 1 --signal=B:USR1@2)
    start_job "limit-$1" "multi-node-$1" -p short "${limit[@]}"
    hold_until 90 ranks_are_signalled
    until_true 60 said_by_state "stopped by a signal"
    cluster scontrol update JobId="$job" TimeLimit=10
    expect_bits "limit-$1"
    expect_starts "limit-$1" 2
    expect_ledger "limit-$1"
}

# expect_refused WHAT CODE PATTERN TEMPLATE WORD...: a start that fails before it trains is its job's only one, says
# why, leaves no trace beside the run, and what waits for the job's success does not begin.
expect_refused() {
    local waiting
    job=$(cluster env RUN="$run" sbatch --parsable -o refused.out --open-mode=truncate "$root/slurm/$4.sbatch" "${@:5}")
    waiting=$(cluster sbatch --parsable --dependency="afterok:$job" --kill-on-invalid-dep=yes --wrap hostname)
    until_true 120 job_is_gone
    expect_equal "SLURM's record of $1" "$(record "$job")" "FAILED 0 $2:0"
    expect_match "what $1 wrote" "$(cat "$folder/refused.out")" "would again: $3.* ends with exit code $2"
    expect_equal "starts of $1" "$(grep -c '^lockstep: job .* start [0-9]*: ' "$folder/refused.out")" 1
    expect_equal "what ranks left of $1" "$(find "$folder/runs" -name '*.ends-*')" ""
    job=$waiting
    until_true 60 job_is_gone
    expect_equal "SLURM's record of what waits for $1" "$(record "$job")" "CANCELLED 0 0:0"
}

# submit_again TEMPLATE: the run's own settings.
submit_again() {
    # shellcheck disable=SC2086 # words
    job=$(cluster env RUN="$run" sbatch --parsable "$root/slurm/$1.sbatch" $settings)
}

# The user's word is the last one: saved, and not requeued. Another model is refused; the same command goes on.
cancel_case() {
    start_job "cancel-$1" "multi-node-$1"
    cluster scancel "$job"
    until_true 60 job_is_gone
    expect_match "a cancelled run" "$(cat "$folder/$run/state.json")" '"phase": *"checkpointed"'
    expect_match "a cancelled job" "$(record "$job")" '^CANCELLED 0 '
    expect_refused "a saved run with other settings" 78 E306 "multi-node-$1" --model mlp --batch "$batch"
    expect_match "that run" "$(cat "$folder/$run/state.json")" '"phase": *"checkpointed"'
    submit_again "multi-node-$1"
    expect_same_bits "cancel-$1" 2
}

# A complete run stays so, whatever else is asked of its folder.
refused_case() {
    run=runs/refused-$RANDOM
    expect_refused "more ranks than virtual ranks" 64 'E640: ' multi-node-srun --model mlp --virtual-ranks 2
    run=runs/refused-$RANDOM
    submit_again time-limit-chain
    expect_same_bits refused 1
    expect_refused "a complete run with other settings" 78 E306 time-limit-chain --model mlp --batch "$batch"
    expect_match "that run" "$(parameters "$run") $(cat "$folder/$run/state.json")" "^$(reference) .*\"phase\": *\"complete\""
}

# What one of two nodes does not have; then it has it again.
missing_case() {
    local launcher what place
    for what in data-srun program-srun program-mpirun; do
        run=runs/missing-$what-$RANDOM launcher=${what##*-} place=$data/train
        [[ $what == data-* ]] || place=$(dirname "$program")
        on node2 mount -t tmpfs none "$place"
        # shellcheck disable=SC2086 # words
        expect_refused "no $what on node2" 66 'E[0-9]*: .*node2' "multi-node-$launcher" $settings
        on node2 umount "$place"
    done
    submit_again "multi-node-$launcher"
    expect_same_bits missing 1
}

# Somebody deletes the run while its job waits to go on: it does not begin anew by itself.
deleted_case() {
    start_job deleted multi-node-mpirun
    cluster scancel --batch --signal=USR1 "$job"
    until_true 60 job_is PENDING
    rm -r "${folder:?}/$run"
    until_true 120 job_is_gone
    expect_equal "SLURM's record of a deleted run" "$(record "$job")" "FAILED 1 66:0"
    expect_match "what its job wrote" "$(cat "$folder"/*.out)" "E547: run '[^']*' is gone"
    expect_equal "a deleted run" "$(ls "$folder/$run" 2>&1)" "ls: cannot access '$folder/$run': No such file or directory"
}

# launch_by_hand LAUNCHER RUN: in an allocation, without a batch script.
launch_by_hand() {
    local line=(mpirun --bind-to none)
    [[ $1 == mpirun ]] || line=(srun --mpi=pmix --cpu-bind=none)
    # shellcheck disable=SC2016,SC2086 # expanded in there; words
    cluster env LOCKSTEP_LOG_EVERY=1 salloc -Q -N2 --ntasks-per-node=2 bash -c \
        '. "$LOCKSTEP_ROOT/slurm/env.sh"; exec "$@"' by-hand "${line[@]}" lockstep train \
        --data "$data/train" --run "$2" $settings >>"$folder/by-hand.out" 2>&1
}

# mpirun ends its ranks two seconds after Ctrl-C; srun asks for a second one, and ends them at once.
ctrl_c_case() {
    local run=runs/ctrl-c-$1 by_hand ended=0
    launch_by_hand "$1" "$run" &
    by_hand=$!
    until_true 90 test -s "$folder/$run/metrics.jsonl"
    on head pkill -INT -o -x "${1/mpirun/mpirun|prterun}"
    sleep 0.3
    [[ $1 != srun ]] || on head pkill -INT -o -x srun
    wait "$by_hand" || ended=$?
    expect_match "exit code of $1 after Ctrl-C" "$ended" '^[1-9]'
    expect_match "a run after Ctrl-C" "$(cat "$folder/$run/state.json")" '"phase": *"(checkpointed|running)"'
    launch_by_hand "$1" "$run" || expect_equal "goes on by the same command" $? 0
    expect_equal "parameters after ctrl-c-$1" "$(parameters "$run")" "$(reference)"
    expect_equal "starts of the run after ctrl-c-$1" "$(cat "$folder/$run/incarnation")" 2
}

# node2 stays as it is, but for its daemon: SLURM takes the node for dead, and ranks live there.
slurmd_killed_case() {
    local steps=100 save_every=20steps first_sign=ckpt/step-000020/manifest.json
    broken=yes
    start_job "slurmd-killed-$1" "multi-node-$1"
    on node2 pkill -9 -x slurmd
    hold_until 90 node2_is_down
    expect_bits "slurmd-killed-$1"
    expect_starts "slurmd-killed-$1" 2
}

# change_job NODES RANKS: while it waits to begin again. One by one: together SLURM refuses some.
change_job() {
    local change
    until_true 60 job_is PENDING
    for change in "NumTasks=$2" "NumCPUs=$2" "NumNodes=$1-$1" "TasksPerNode=$(($2 / $1))"; do
        cluster scontrol update "JobId=$job" "$change"
    done
}

# 4 ranks, then 2 on the one node that is left, then 3 on three nodes.
fewer_nodes_case() {
    local steps=160 more_settings=--ledger given ranks=4 start=1
    start_job fewer-nodes multi-node-mpirun -N2 --ntasks-per-node=2
    for given in 1 3; do
        until_true 90 has_steps $(($(wc -l <"$folder/$run/metrics.jsonl") + 15))
        cluster scancel --batch --signal=USR1 "$job"
        ranks=$((given == 1 ? 2 : 3)) start=$((start + 1))
        change_job "$given" "$ranks"
        until_true 60 starts_are "$start"
        until_true 60 test -d "$folder/$run/logs/i$start"
    done
    expect_same_bits fewer-nodes 3
    expect_equal "ranks of the starts" "$(cd "$folder/$run/logs" && for i in i1 i2 i3; do
        printf '%s\n' "$i"/rank-*.jsonl | wc -l
    done | paste -sd' ')" "4 2 3"
    expect_ledger fewer-nodes
}

# A node hangs, ranks, script and all; SLURM loses it and starts the job elsewhere; the node comes back to
# life. Its ranks' next checkpoint is refused, and its script leaves the job alone.
fenced_case() {
    local steps=100 save_every=20steps log_every=1000 first_sign=ckpt/step-000020/manifest.json first
    broken=yes
    start_job fenced multi-node-mpirun -N1 --ntasks-per-node=2
    first=$(cluster squeue -h -j "$job" -o %N)
    on "$first" pkill -STOP -x lockstep-train
    on "$first" pkill -9 -x slurmd
    cluster scontrol update "NodeName=$first" State=DOWN Reason=lost
    until_true 150 starts_are 2
    on "$first" pkill -CONT -x lockstep-train
    nobody_is_left() { ! on "$first" pgrep -f slurm_script >/dev/null; }
    until_true 60 nobody_is_left
    expect_same_bits fenced 2
    expect_match "what the first start met" "$(cat "$folder/$run"/logs/i1/rank-00000.log "$folder"/*.out)" \
        "E408: run '[^']*' was taken over"
    # By then the later start may be done.
    expect_match "what its script said" "$(cat "$folder"/*.out)" \
        'start 1: (SLURM has begun a later start of this job|the run is complete)'
    (cd "$folder" && "$program" ckpt verify "$run" >verify.out 2>&1) || expect_equal "checkpoints" damaged whole
}

run_case() {
    local launcher=${1##*-}
    case $1 in
    limit-*) limit_case "$launcher" && return ;;
    time-limit-*) time_limit_case "$1" "$launcher" 100 3 && return ;;
    third-*) time_limit_case "$1" "$launcher" 180 4 && return ;;
    cancel-*) cancel_case "$launcher" && return ;;
    ctrl-c-*) ctrl_c_case "$launcher" && return ;;
    slurmd-killed-*) slurmd_killed_case "$launcher" && return ;;
    fewer-nodes | fenced | refused | missing | deleted) "${1//-/_}_case" && return ;;
    preempt-mpirun) start_job "$1" multi-node-mpirun -p preempt && preempt_by ;;
    preempt-srun) start_job "$1" preemptible && preempt_by ;;
    rank-killed) start_job "$1" multi-node-mpirun && on node2 pkill -9 -o lockstep-train ;;
    orted-killed) start_job "$1" multi-node-mpirun && on node2 pkill -9 -x 'orted|prted' ;;
    stepd-killed) start_job "$1" multi-node-srun && on node2 pkill -KILL slurmstepd ;;
    launcher-killed-*) start_job "$1" "multi-node-$launcher" && on node1 pkill -9 -x "${launcher/mpirun/mpirun|prterun}" ;;
    requeue-*) start_job "$1" "multi-node-$launcher" && cluster scontrol requeue "$job" ;;
    cut-*) broken=yes && start_job "$1" "multi-node-$launcher" && "$here/break" --name "$name" cut node2 ;;
    stopped-*) broken=yes && start_job "$1" "multi-node-$launcher" && on node2 pkill -STOP 'slurm|orted|prted|lockstep' ;;
    node-lost-*) broken=yes && start_job "$1" "multi-node-$launcher" && "$here/break" --name "$name" kill node2 ;;
    *) expect_equal "a case" "$1" "one of ${all_cases[*]} ${more_cases[*]}" && return ;;
    esac
    expect_same_bits "$1" 2
    expect_match "SLURM's record after $1" "$(record "$job")" '^COMPLETED 1 '
    case $1 in
    rank-killed | stepd-killed)
        expect_match "what the launcher said of $1" "$(cd "$folder" && "$program" logs "$run" --incarnation 1)" \
            '\[launcher node1\] (info|warn)  '
        ;;
    esac
}
