# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What a SLURM job says to Open MPI, UCX, NCCL and OpenMP, and why. Included by job.sh; to be included
# by your own scripts. A value that is set already stays. Edit here, or export before sbatch:
#   NETWORK_INTERFACE=ib0     the interface that all nodes share (a site preset names it); it has to be there
#   MODULES="gcc/12 openmpi/4.1"     to be loaded; a job without one of them ends

# default NAME VALUE: exported unless the user or the site has set it.
default() { [[ -n ${!1+set} ]] || export "$1=$2"; }

read -rd '' -a modules <<<"${MODULES:-}" || true  # lines, too
for module in "${modules[@]}"; do
    module load "$module" || {
        echo "env.sh: error: module '$module' is not to be had on $(hostname)" >&2
        echo "  fix: MODULES, as 'module avail' names them" >&2
        exit 66
    }
done

# --- SLURM ---------------------------------------------------------------------------------------
# srun does not inherit --cpus-per-task since 22.05: each rank would get one core.
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || default SRUN_CPUS_PER_TASK "$SLURM_CPUS_PER_TASK"
# After sbatch --export=NONE it is NONE, and srun would give ranks, and mpirun's daemons, nothing of this script's variables.
unset SLURM_EXPORT_ENV
# The barrier at the end of MPI_Init under srun --mpi=pmix. By itself SLURM passes data in a ring, but
# barriers by a tree, which lets nodes through before others have come: the first message to one of
# those then crashes it in MPI_Init (22.05 with PMIx 4.2.2: 11 of 280 starts on a busy machine; ring: 0).
default SLURM_PMIX_FENCE ring

# --- Open MPI ------------------------------------------------------------------------------------
# scancel and preemption send TERM to mpirun's daemons too, which kill their ranks a second later,
# although the job has KillWait (30 s) left for a checkpoint. A blocked TERM leaves the ranks, who
# get it themselves, all of that time. (odls_base_sigkill_timeout N, the usual advice, lets ranks
# live on for 4 N seconds when one of them crashes.) coreutils before 8.31 cannot block signals.
if env --block-signal=TERM true 2>/dev/null; then
    keep_ranks=(env --block-signal=TERM)
    default OMPI_MCA_orte_launch_agent "env --block-signal=TERM orted"
    default PRTE_MCA_prte_launch_agent "env --block-signal=TERM prted"
else
    # shellcheck disable=SC2034 # used by job.sh
    keep_ranks=()
fi
# A node that vanishes is noticed after 10 + 3 * 5 s, not after 300 + 9 * 20 s.
default OMPI_MCA_oob_tcp_keepalive_time 10
default OMPI_MCA_oob_tcp_keepalive_intvl 5
default OMPI_MCA_oob_tcp_keepalive_probes 3
# The daemons of Open MPI 5 are called prted, and read PRTE_MCA_*. (5.0.11 crashes where interfaces are excluded.)
default PRTE_MCA_oob_tcp_keepalive_time 10
default PRTE_MCA_oob_tcp_keepalive_intvl 5
default PRTE_MCA_oob_tcp_keepalive_probes 3
# One network for start-up and messages. Otherwise Open MPI takes every interface that is up, and
# waits for ever on one that leads nowhere from another node (docker0, virbr0).
if [[ ${NETWORK_INTERFACE:-} =~ ^[[:alnum:]._-]+$ && ! -e /sys/class/net/$NETWORK_INTERFACE ]]; then
    echo "env.sh: error: node $(hostname) has no network interface '$NETWORK_INTERFACE'" >&2
    echo "  fix: NETWORK_INTERFACE, as one of those that it has: $(cd /sys/class/net && echo *)" >&2
    exit 66
fi
if [[ -n ${NETWORK_INTERFACE:-} ]]; then
    default OMPI_MCA_oob_tcp_if_include "$NETWORK_INTERFACE"
    default PRTE_MCA_prte_if_include "$NETWORK_INTERFACE"
    default OMPI_MCA_btl_tcp_if_include "$NETWORK_INTERFACE"
else
    # An own list replaces Open MPI's: the loopback has to be in it.
    default OMPI_MCA_btl_tcp_if_exclude 127.0.0.1/8,docker0,virbr0,podman0
    default OMPI_MCA_oob_tcp_if_exclude docker0,virbr0,podman0
fi
# CPU-only nodes have no libcuda: no warning for each rank.
default OMPI_MCA_opal_warn_on_missing_libcuda 0
# In a container ptrace may be forbidden, and copying between ranks with it.
if [[ -n ${APPTAINER_CONTAINER:-}${SINGULARITY_CONTAINER:-} ]]; then
    default OMPI_MCA_btl_vader_single_copy_mechanism none
    default OMPI_MCA_smsc ^cma,knem,xpmem  # the same for Open MPI 5
fi

# --- UCX (where Open MPI has it: InfiniBand, RoCE) -------------------------------------------------
# UCX's handler of SIGSEGV would wait for a debugger: a dead rank should be dead.
default UCX_HANDLE_ERRORS none
# Its warnings about variables of newer versions go to every rank's stderr.
default UCX_WARN_UNUSED_ENV_VARS n
# Network cards: all by default; to choose: export UCX_NET_DEVICES=mlx5_0:1

# --- NCCL ----------------------------------------------------------------------------------------
# '=' asks for exactly this name; without it eth1 would match eth10 too.
[[ -z ${NETWORK_INTERFACE:-} ]] || default NCCL_SOCKET_IFNAME "=$NETWORK_INTERFACE"
default NCCL_SOCKET_IFNAME '^lo,docker,virbr,podman'
# Errors are said, once.
default NCCL_DEBUG WARN
# NCCL's RAS opens a port that asks nobody for a password.
default NCCL_RAS_ENABLE 0
# InfiniBand cards: all by default; to choose: export NCCL_IB_HCA=mlx5_0,mlx5_1

# --- CUDA ----------------------------------------------------------------------------------------
# GPUs in the order of nvidia-smi, not the fastest first.
default CUDA_DEVICE_ORDER PCI_BUS_ID
