// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// E1xx usage and configuration, E2xx data, E3xx checkpoints, E4xx files and run directories,
// E5xx SLURM, E6xx launch and communication, E7xx training and bugs. Sorted by code. An entry is
// "# CODE EXIT: TITLE" and the lines of its text.
constexpr std::string_view page = R"(
# E101 usage: unknown option or command
The command line has a word that this command does not know. Options are spelled out in
full; 'lockstep COMMAND --help' lists them with their defaults.
# E102 usage: a value is out of range
The option exists and the value was understood, but it is outside of what makes sense. The
message names the allowed range.
# E103 usage: a value cannot be read
The text given for an option is not of the option's type: a whole number, a real number, a
size such as 64MiB, a period such as 500steps or 1epoch, or one of a list of words.
# E104 usage: an option is given twice
Two values were given for an option that takes one. Lockstep does not choose between them.
# E105 usage: an argument is missing
The command needs an argument or option that was not given.
# E106 usage: options do not go together
Each option is fine by itself, but together they ask for something impossible, such as a
global batch that does not divide into the run's virtual ranks.
# E107 usage: a setting has no effect where it stands
Another setting, or the data, makes it useless: --momentum with --optimizer adam,
--evaluate-every without --test-data, a batch of more samples than there are. It is only a
warning if the setting comes from a configuration file or a variable, which may serve
other runs, or if the run exists, as a run keeps its settings.
# E110 config: a configuration file has a syntax error
The file is not valid TOML. The message shows the line and a caret under the place.
# E111 config: a configuration file has an unknown key
Keys are the long option names; a dash may be written as it is. The nearest known key is
suggested.
# E112 config: a configuration value has the wrong type
The key exists, but its value is of another type, often a number inside quotes.
# E113 config: an environment variable cannot be read
A LOCKSTEP_* variable, or one of the launcher's, is set to something that is no number.
# E115 config: a configuration file is not text
Configuration files are UTF-8 text of at most 1 MiB.
# E116 missing_input: a configuration file cannot be opened
The path given with --config does not exist or is not a file.
# E201 missing_input: a file or folder does not exist
The path is missing on this node. On a cluster, check that it is on a shared file system.
# E202 permission: a file may not be read
The file's mode does not let this user read it.
# E203 bad_data: a file is not HDF5
The first bytes are not HDF5's signature. Often a download error page or another format.
# E204 bad_data: a shard is cut short
The file has fewer bytes than its manifest or its index says: the writer or a copy was
interrupted. Copy it again, then run 'lockstep data verify'.
# E205 bad_data: an HDF5 file cannot be opened
The HDF5 library refuses the file. The message carries the library's own reason.
# E206 usage: a path is no file
It is a pipe (FIFO), a socket or a device, or a folder in place of weights. Data, models
and configuration files are read at any place and more than once, which only files allow.
# E207 bad_data: a data set field is missing
A shard lacks a field that the manifest or the command names.
# E208 bad_data: shards do not fit together
One shard's shape, type or identity differs from the others'.
# E209 bad_data: fields have different numbers of samples
All fields of a data set have one row per sample.
# E210 bad_data: a label is out of range
A label is negative or not below the number of classes; as a text it is empty or too long,
or a row that should be one-hot has not one 1 and 0 elsewhere.
# E212 bad_data: a filter is not known
Lockstep reads contiguous data and chunks compressed with deflate, lz4, zstd or, where it
was built with it, blosc.
# E213 bad_data: stored bytes do not match their hash
The bytes on disk differ from what was written: a disk, memory or copy error. The block was
read twice. Restore the shard from its source.
# E214 bad_data: an input file is malformed
The file to be packed is not what its format says: wrong magic number, wrong length or
impossible sizes.
# E215 usage: fewer samples than ranks
Every virtual rank needs at least one sample in a step.
# E216 bad_data: no data set here
A data set is a folder with a manifest.json made by 'lockstep data pack'.
# E217 bad_data: a data set does not fit the model
Shape, classes or, of test data, units or columns differ from what the model takes; or
--inputs names fields that are no inputs, or more than the model takes; or some step has a
sample that is computed by itself, of which batch norm has no statistics (--drop-last).
# E220 bad_data: a path leaves its folder
Paths in manifests are names inside the folder of the manifest: no '..', no absolute
paths, no links out, no devices. The folders in a run directory are no links either, since
files are written and deleted in them.
# E222 bad_data: a manifest makes no sense
A JSON file is malformed, nested too deeply, or has a field of a wrong type or size.
# E223 bad_data: a manifest was changed
The manifest's own digest does not match its content.
# E224 config: the job's memory limit is too small to read with
A stream's buffers are made when it begins, and must fit into the smallest memory limit of
this process's control groups, less what the process has already. Give the job more memory
(Slurm: --mem), or read with fewer lanes, smaller windows or smaller batches.
# E225 config: out of memory
The system refused memory, or a thread, which needs some for its stack. 'ulimit -v',
'ulimit -u' and the job's control group limit both. 'lockstep submit' and 'lockstep
doctor' say what a job needs; --skip-checks leaves such checks out.
# E227 usage: data do not fit in memory
All rows of the data set were to be kept in memory ('resident'), but they do not fit into
what is allowed for data, what the node has free, or the room for shared memory. Stream
them instead, with the order 'lanes' in a new run.
# E228 missing_input: no ledger here
The run has no ledger, or none of its files can be read. A run has one if it is trained
with --ledger from its first step on.
# E229 bad_data: samples were not seen exactly once
The ledger lacks samples in an epoch that ended, has samples twice, or has damaged files. A
rank that is killed only leaves torn ends, which later starts supersede: that is no reason.
Ledger files that were lost, or a ledger that was not on from the first step, are.
# E230 bad_data: an index did not arrive as it was sent
Rank 0 opens a data set and sends the other ranks where its blocks are. What arrived is
not what was sent, or makes no sense: different versions of Lockstep, or a memory or
network error.
# E231 bad_data: the HDF5 library crashed on a file
libhdf5 reads the structures of an untrusted file in a separate process,
'lockstep-h5probe'. This process crashed or ran out of memory: the file is damaged or
malicious. The job itself is not affected.
# E232 bad_data: the HDF5 library took too long over a file
'lockstep-h5probe' reads a file's structures under limits of CPU and wall time. A damaged
file can cause an endless loop in libhdf5. A file system that hangs looks the same.
# E233 service_away: the HDF5 helper cannot be used
'lockstep-h5probe' is in the program's folder, or at the path in LOCKSTEP_H5PROBE. It is
missing, cannot be started, has another version, or gave an invalid answer about a file.
# E234 bad_data: a data set of a foreign file cannot be streamed
HDF5 files that others wrote are streamed as they are if the first dimension of each
chosen data set is the sample, its type is a whole number of 8 to 64 bits (u64: labels
only) or a float of 16, 32 or 64, and it is contiguous or in chunks. Labels may be texts
or enumerations, too. 'lockstep data pack --hdf5' makes shards of others.
# E235 usage: a field is not described well
--field NAME=PATH or --field NAME=PATH:LAYOUT: NAME is what training calls it, PATH is a
data set in the HDF5 files, LAYOUT says what it is: CHW, HWC, HW, label, onehot or value.
Images whose sizes may be height, width, channels as well as channels, height, width need
one. ':cf' behind them unpacks numbers by the attributes of the CF conventions.
# E236 bad_data: a value is missing
A field of ':cf' has a value that is missing by _FillValue, missing_value or valid_range.
':cf=NUMBER' names the number that replaces it, which may be 'nan'.
# E237 bad_data: an image cannot be decoded
An image to pack is cut short, damaged, larger than 67 million pixels, or of an unsupported
kind: CMYK, several pages, PNM of 16 bits. The message says why.
# E238 bad_data: images do not fit together
All images of a data set have one size and the same channels. --resize HEIGHTxWIDTH and
--color rgb|gray convert them.
# E239 bad_data: a cell is no number
A cell of a CSV file is empty, not finite, or no number at all. The message names line and
column. Without a header, or with more text columns than the label, say so: --header,
--label.
# E240 usage: an unfinished pack of something else exists
An interrupted pack leaves its finished shards in '.NAME.partial' next to the output, so
that the same command can continue. This command has other options or another input. Give
those of the unfinished pack, or --restart to remove its shards and begin again.
# E241 usage: ranks do not see the same folder
Ranks that write one data set need a file system that all their nodes share.
# E242 interrupted: interrupted
A signal ended the command. Packing, staging and resharding keep what is finished: the
same command continues from there. 'verify', 'drill', 'tune' and 'predict' begin again.
# E243 usage: not the staged copy it should be
'lockstep data stage' only uses, repairs and removes copies that it made of the same data
set: folders with a staged.json of that digest.
# E247 usage: transforms cannot be read
The text after --transform is a list of steps and presets between commas, such as
"crop 32 pad 4, flip, normalise". 'lockstep train --help' lists them.
# E248 usage: a transform does not fit the images
The step exists, but not for images of this size or number of channels: for example, a crop
that is larger than the padded image. Shapes are checked step by step before training.
Numbers, tokens and images with masks are not transformed; several --inputs are not mixed.
'normalise' needs the mean and deviation of an input, which packed data may have.
# E249 config: this build lacks the library of a format
PNG, JPEG, TIFF and blosc are optional where Lockstep is built; the summary at the
end of cmake's configure step says which are in. 'scripts/setup run' installs all of them
on Debian.
# E250 config: a model cannot be trained by this program
--model names a plug-in (.so), a program of torch.export (.pt2) or a TorchScript file
(.pt). A plug-in must have been built with this program's headers and LibTorch, and end
with LOCKSTEP_MODEL_PLUGIN. A program is what torch.export.save() writes: exported after
train(), with a free batch dimension, one output, and PyTorch's own operators. A
TorchScript file is what torch.jit.save() writes. Parameters must be f32, and buffers
f32, single whole numbers or bools: ranks sum and average them. Gradients must be dense,
and reach some parameter. Or the code of your own model failed: its exception is shown, and
where it was thrown.
# E251 bad_data: a data file changed while it was in use
HDF5 files that others wrote have no hashes. Training checks their size, time
and inode at the end of each epoch, and before each evaluation and checkpoint. A file that
differs ends it. The last checkpoint was trained on the original data.
# E301 missing_input: no checkpoint here
The folder has no checkpoint to work with.
# E303 bad_data: no checkpoint is whole
Checkpoints exist, but each is damaged. 'lockstep ckpt verify RUN' says how. The command
'lockstep ckpt rm' does not remove the last one that is whole.
# E304 bad_data: weights do not fit the model
Names or shapes of tensors, in a checkpoint or in the file of --load-weights, differ from
the model's.
# E305 bad_data: a file has another format
The run, checkpoint or data set was written by a newer version.
# E306 config: the run was made with other settings
A run directory keeps the settings that decide its result. They cannot change on resume;
use another run directory for another experiment. It also keeps a digest of the data. If
that of foreign files differs, the message says whether their samples differ, too. If they
do not, --accept-data continues.
# E309 bad_data: a file of weights is malformed
Header, offsets and file size must agree without holes or overlaps. An index names files
beside it, and an .npz is not compressed. If the file is of another kind, the message says
which, and names the command that converts it.
# E310 bad_data: a checkpoint is damaged
A piece's bytes differ from the hash in the checkpoint's manifest.
# E401 cannot_create: a folder cannot be created
The parent folder does not let this user write, or something else has that name.
# E402 io: reading or writing failed
The operating system reported an I/O error. The message carries its reason.
# E403 cannot_create: too little space
The file system has less room than is needed.
# E404 service_away: the run is in use
Another job holds the run directory's lock. Two jobs on one run would damage it.
# E405 cannot_create: the disk is full
No space is left; nothing that was whole is lost.
# E406 bad_data: a file is too large
A text file is larger than anything that Lockstep would have written.
# E407 usage: the output exists
Lockstep does not overwrite a data set or run. Give another name, or remove it first.
# E408 io: the run was taken over
A newer incarnation of this run has started; this one must not write any more.
# E409 io: the device failed
The operating system could not read or write these bytes (EIO): a disk with bad sectors, or
a network file system whose server is gone.
# E410 io: the run's folder is gone
While the run was at work, its folder was moved, renamed or deleted, or its file server
lost it. Nothing more is written: not at the old place, and not at the new one.
# E420 missing_input: the run kept no steps
Each rank of a run records the times of its steps in logs/iN/rank-NNNNN.steps. Without them
the run's speed is unknown.
# E421 usage: the runs do different work
Scaling can only be measured if nothing but the number of ranks changes. Model, data, batch
and all settings that decide the work of a step must be the same. 'lockstep compare' says
what differs.
# E511 service_away: SLURM does not answer
squeue failed three times: the controller is down, or this host may not connect to it. The
message has SLURM's output.
# E520 usage: not in a SLURM job
'lockstep slurm' commands are lines of a batch script: SLURM tells them which job they are
in.
# E522 saved_please_requeue: a job could not be requeued
'scontrol requeue' failed three times. The site may not allow it (JobRequeue=0), or the
controller is down. The run is saved: submit the same job again to resume it.
# E523 usage: no such partition
SLURM has no partition of that name, or none was given and there is no default one. The
message lists those that there are; so does 'sinfo'.
# E524 usage: a number of nodes that no job can get
The partition has fewer nodes that could hold the job, or rules for how many one may have.
SLURM accepts such a job and lets it wait for ever.
# E525 usage: a time limit above the partition's
SLURM accepts such a job and lets it wait for ever. A run that needs longer saves before
its limit, requeues itself and continues; or see --chain.
# E526 usage: a time cannot be read
SLURM's forms: MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.
# E527 usage: GPUs that no node has
No node of the partition has so many GPUs, of that type. 'sinfo -o "%P %G"' lists them.
# E528 usage: memory that no node has
--mem is of each node. 'sinfo -o "%P %m"' lists what nodes have, in MB.
# E529 service_away: SLURM is not installed here
'lockstep submit' needs sbatch, sinfo, scontrol and squeue on PATH: call it on a login
node. Without SLURM there is 'lockstep train --np N'.
# E530 service_away: SLURM cannot authenticate
SLURM's commands prove who you are by munge, whose daemon does not answer on this host.
# E531 bad_data: a template cannot be used
A template is a shell script with #SBATCH lines and Unix line ends. Those of slurm/ start
ranks by a line 'run_ranks mpirun lockstep ...', which --launcher and --container change.
# E532 usage: characters that a batch script cannot contain
Names and options of SLURM stand in comment lines of the script and in file names. They may
have only letters, digits and . _ -. Paths and words after -- are quoted, so they may have
any characters but control characters.
# E533 usage: an account that may not be used
The account is not yours, or the partition does not admit it. 'sacctmgr show associations
user=$USER' lists yours.
# E534 usage: a dependency that is met at once, or never
SLURM starts a job at once that waits for one it does not know, and forgets jobs some
minutes after their end. One that waits for the success of a job that failed waits for
ever.
# E535 usage: a partition that starts no jobs
Its administrators have closed it (DOWN, DRAIN or INACTIVE).
# E536 usage: more CPUs or tasks than there are
Each task needs --cpus-per-task CPUs of one node.
# E537 usage: a launcher that cannot do this
srun needs SLURM's PMIx plug-in to start MPI ranks ('srun --mpi=list'); mpirun sees only
the first part of a heterogeneous job, and pyxis belongs to srun.
# E538 usage: an array's task number is too high
SLURM's MaxArraySize bounds them.
# E539 missing_input: a template, site or image is not there
Templates are slurm/*.sbatch, sites slurm/sites/*.toml below the folder of Lockstep
(LOCKSTEP_ROOT), or files of your own by their path.
# E540 service_away: SLURM refused the job
sbatch refused a request that looked possible. The message has its output. Nothing more was
submitted.
# E541 do_not_requeue: a job is restarted again and again without progress
'lockstep slurm prolog' found this before it started the ranks. SLURM itself requeues a job
that lost a node, so that its script never runs 'lockstep slurm epilog'.
# E542 usage: a feature that no node has
--constraint names features of nodes; 'sinfo -o "%P %f %N"' lists them.
# E543 usage: nodes that cannot be had by name
--nodelist and --exclude name nodes of the cluster; a job gets all of the first and none of
the second, and has to fit on what is left. 'sinfo -N' lists them.
# E544 usage: a reservation that is not there, or not yours
'scontrol show reservation' lists those that have not ended, their nodes and their users.
# E545 usage: a QOS that may not be used
'sacctmgr show associations user=$USER format=account,qos' lists yours; a partition may
allow some only ('scontrol show partition').
# E546 usage: licences that the cluster does not have
'scontrol show license' lists those that SLURM counts.
# E547 missing_input: the run of a restarted job is gone
SLURM has started the job again, and its run directory was deleted, moved or renamed in
between, or is not mounted here. A new run in its place would begin at step 0.
# E548 usage: GPUs that the job would not use, or must have
Other jobs cannot use the GPUs of a job, and SLURM hides GPUs that a job did not request.
Give --gpus-per-node with --device cuda or auto, but not with --device cpu.
# E601 usage: more ranks or threads than cores
Each rank computes with at least one thread, and with 16 threads a core a step takes
minutes. --oversubscribe allows more of both, which is right for tests only.
# E603 permission: Open MPI refuses to run as root
Use your own account. In a container, set OMPI_ALLOW_RUN_AS_ROOT=1 and
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.
# E604 config: MPI and its launcher do not fit together
The launcher started several processes but each sees one rank, the thread level is too low,
or MPI_Init ended a rank: the program's MPI differs from the launcher's, for example.
# E605 config: ranks differ
Ranks run different versions, were given different settings, or see different files.
# E606 config: a topology contradicts itself
A file of 'lockstep map --save-topology' names a node's parts. Each CPU is in one core, one
cache, one socket and one NUMA node; devices are on NUMA nodes that exist, each once.
# E607 usage: the ranks do not fit the hosts
'lockstep map' lays ranks out as mpirun and srun do: over --hosts NAME:SLOTS,... or over
--nodes N with --ntasks-per-node M. Names are unique, and there is a slot for each rank.
# E608 config: two ranks on one GPU
Each rank computes on a GPU of its own. Two on one share its memory and its time, and NCCL
refuses them. Start as many ranks on a node as it has GPUs, each seeing all of them.
To try out bits with one GPU, 'train --device cuda --share-gpu' allows it.
# E609 config: two ranks on the same cores
The launcher bound two ranks to sets of cores that overlap: each runs at a fraction of its
speed and waits for the other in every step. The message has a line that binds them
correctly.
# E610 missing_input: a program cannot be started
mpirun or another program is not on PATH.
# E611 peer_lost: a child process took too long
It was ended after its time limit.
# E612 peer_lost: the ranks were killed
A signal from outside ended mpirun or one of its ranks. The message says what that signal
usually means. Only the steps since the newest checkpoint are lost.
# E613 config: the doctor found errors
'lockstep doctor' names each error with its cause and fix. 'train' runs the fast checks
before it starts. docs/doctor.md has a paragraph on each check.
# E614 usage: no such check
Checks are called D1 to D9, C1 to C7, G1 to G13, F1 to F16, L1 to L9 and T1 to T5; a letter
alone means its family. 'lockstep doctor --list' shows them.
# E620 peer_lost: MPI reported an error
The message carries MPI's own text.
# E630 peer_lost: a rank did not arrive
Other ranks waited for it until their deadline. Its own log says what it was doing.
# E631 usage: shared memory does not reach across nodes
--transport shared-memory works for ranks of one node.
# E632 cannot_create: no room for shared memory
Open MPI backs shared windows by files in its session directory or /dev/shm. It and PMIx
keep files in TMPDIR or /tmp of each host besides.
# E640 usage: more ranks than virtual ranks
A run's virtual ranks (V) are fixed when it is created; it runs on 1 to V ranks. Create the
run with a larger --virtual-ranks.
# E642 config: the communication thread cannot stay on its CPU
The system refused the CPU that was chosen for it: this process may not use it.
# E643 config: more ranks than cores on a node
A plan gives each rank at least one core of its own. Use fewer ranks, allow SMT siblings
(--smt), or ask the launcher for more cores.
# E644 config: the job differs from the plan
Ranks do not run where the plan has them. The message names each difference; start the job
with the line that 'lockstep map --format mpirun' or '--format srun' gives.
# E645 usage: a plan cannot be written in this form
mpirun and srun cannot express every plan: srun binds all nodes in the same way. Use
another --format (rankfile, json, table).
# E646 config: sources disagree about which ranks share a node
MPI, the launcher's variables and the operating system each say which ranks share a node.
They must agree: otherwise ranks would take each other's cores and GPUs. Containers that
hide the host's name or share one, and variables left over from another launch, make them
differ.
# E647 config: a host cannot be reached
A name in --hosts is unknown here, its host does not answer over ssh, or no network
connects all hosts. The message says what is wrong with each host.
# E648 config: no such GPU
CUDA_VISIBLE_DEVICES names GPUs by index or by UUID. One of them is not
on this node, or the list mixes GPUs with MIG instances.
# E650 usage: buffers larger than memory
'lockstep bench comm' holds two buffers of --max-bytes for each rank, and one for each
node.
# E651 bug: an all-reduce gave a wrong sum
'lockstep bench comm' sums whole numbers whose sum is exact in every order. The
column #wrong counts elements that differ.
# E652 service_away: slower than --min-busbw
Lockstep's best bus bandwidth over all sizes is below what was asked for.
# E653 usage: a group has too few ranks to measure
--split intra needs two ranks on every node, --split inter needs two nodes.
# E660 peer_lost: a rank hangs or is lost
All ranks wait for each other in every step. The message names the rank that the others
wait for and its last action. Its log and, in logs/iN/flight, the list of its threads say
more. --comm-timeout sets how long ranks wait. 'lockstep diagnose RUN' shows the same
while a job runs and after it ended; 'lockstep logs RUN --first-error' adds the rank's
last lines.
# E661 bug: ranks call different collectives
Every rank must call the same collectives in the same order with the same sizes and types.
The message names the ranks that differ from the others.
# E662 config: ranks have different models
The ranks disagree on the sizes of tensors, buckets or virtual ranks before any gradient is
exchanged: they run different programs or were given different settings.
# E663 missing_input: a run has no flight records
'lockstep diagnose' reads what each rank records below logs/iN/flight of the run directory.
# E670 missing_input: no usable GPU
There is no NVIDIA driver (libcuda.so.1), no GPU with the wanted number, or Lockstep's GPU
library (lib/liblockstep_cuda.so) is missing or of another version.
# E671 missing_input: NCCL cannot be loaded
libnccl.so.2 was not found, is no NCCL, or is too old. LOCKSTEP_NCCL_LIB names the file.
# E672 config: two NCCL libraries in one process
LibTorch brings an NCCL of its own. A process must have one only.
# E673 usage: two ranks on one GPU
NCCL gives each rank a GPU of its own. The message names the ranks and the GPU.
# E674 config: ranks have different NCCL versions
The message says which rank has which. Name the same file on all nodes.
# E675 config: ranks have different NCCL settings
Variables such as NCCL_ALGO decide the messages between ranks. If they differ, NCCL hangs.
They come from the environment, ~/.nccl.conf and /etc/nccl.conf.
# E676 peer_lost: NCCL did not start in time
The message names the phase and the last state of each rank. The most frequent cause: the
nodes do not reach each other over the interface that NCCL chose (NCCL_SOCKET_IFNAME).
# E677 peer_lost: NCCL reported an error
The message carries NCCL's own text. NCCL_DEBUG=INFO says more.
# E678 peer_lost: a collective on GPUs did not end in time
Another rank did not issue it, hangs, or cannot be reached. All communicators were aborted.
# E679 bug: a sum on GPUs is wrong
Each communicator is tried with a small sum before it is used. A wrong one means a broken
path between GPUs, a broken GPU, or a bug in NCCL or Lockstep.
# E680 peer_lost: a communicator was aborted
Another thread or rank failed first; its message says why.
# E681 io: CUDA reported an error
The message carries CUDA's own text. nvidia-smi and dmesg ('NVRM: Xid') say whether the GPU
is well.
# E682 peer_lost: another rank failed
The message repeats its error; its own log has all of it.
# E683 service_away: nothing runs there
'lockstep stop' and 'lockstep save' send a request to a run in progress. This one has
ended, or its process is gone; 'lockstep status RUN' says which. The same 'lockstep train'
resumes it.
# E684 peer_lost: the run ended for another reason
While 'lockstep stop' or 'lockstep save' waited, the run failed, was killed or was started
anew. Its own message and logs say why; its checkpoints are whole.
# E685 service_away: the run has not answered yet
A run reads requests once a second, between two steps, but not during setup or evaluation.
The request stays until the run reads it. 'lockstep diagnose RUN' says whether a rank
hangs.
# E686 usage: another request replaced this one
A run carries out one request at a time, the newest. Somebody sent another one after yours.
# E688 missing_input: this is no run
A run directory has a run.json and a run.lock in it; 'lockstep train --run DIR' makes them.
# E689 config: the GPU that is planned for a rank is hidden from it
Each rank selects its GPU by PCI address. A control group (srun --gpus-per-task) or
CUDA_VISIBLE_DEVICES hides it; the message lists what CUDA shows instead.
# E690 config: CUDA selected another GPU than was planned
After selecting, CUDA is asked what it selected. Another PCI address or UUID means that the
plan is of another node, or that something used CUDA before.
# E691 peer_lost: the launcher had to be ended
mpirun did not end although all its ranks had ended, or its ranks did not begin to train
within ten minutes. It was sent TERM, then KILL. Its output says more. Usual causes are a
full /dev/shm, a limit, or a network without a route to the other hosts.
# E692 peer_lost: ranks do not reach each other
MPI has started them, but their first exchange does not end: Open MPI uses a network that
does not connect the hosts, or a host does not answer. The message names the networks of a
host and, if they could be tested, those in which mpirun's host answers.
LOCKSTEP_START_TIMEOUT sets the seconds (300 in MPI_Init, 45 after it).
# E693 config: a limit is too low for ranks
With this limit mpirun starts no ranks, prints nothing and does not end. The message has
both numbers.
# E694 missing_input: LibTorch cannot compute on GPUs here
--device cuda loads libtorch_cuda.so, which needs other libraries (cuDNN, cuBLAS, NCCL
...). The message has the loader's error. LOCKSTEP_TORCH_CUDA_LIB names another file.
# E695 config: an operator may give other bits each time
LibTorch has no kernel for it on this device that adds in a fixed order, so no run could be
repeated, whatever its ranks. The message names the operator.
# E696 config: a GPU has no memory left
Weights, gradients and optimizer state take three to five times the model's size; what a
leaf computes grows with its samples. --micro-batches, more ranks or --precision fp16 need
less. A convolution could often go on with another kernel, but its bits would differ.
# E697 config: mpirun started no rank
mpirun ended before it started the ranks, with an error that is shown. Usual reasons are
settings in OMPI_MCA_* variables or in mca-params.conf, another MPI's mpirun that comes
first in PATH, and a name of the host that is too long for Open MPI 4.
# E700 bug: this is a bug in Lockstep, or in a program that calls it
A claim does not hold. A program of your own may have called the library against what the
header says. Otherwise please report the message and the rank's log.
# E701 bad_data: the loss is not finite
The loss became infinite or not a number. Checkpoints written before are good. In the
run's first step nothing is learned yet: then it is a sample, the model's initial weights,
or an operation that goes wrong with several threads (--threads 1 tells). Later lower the
learning rate or check the data. --on-nonfinite skip leaves such steps out, 100 in a row
at most; --on-nonfinite rollback, in a new run, goes back to the last checkpoint's
weights, too.
# E702 config: the processor lacks the run's instruction set
The run's bits are tied to an instruction set that this processor does not have.
# E703 bug: different numbers of ranks gave different bits
'lockstep verify' compares the parameters after a few steps. They must be equal.
# E704 bug: the negative control has no power
'lockstep verify --plain' must find a difference between numbers of ranks, to show that the
comparison would notice one.
# E705 bug: a training that was to be compared failed
'lockstep verify' runs 'lockstep train' on each number of ranks, 'lockstep tune' with each
setting, 'lockstep drill' without a fault. One of them ended with an error of its own,
which is shown, and whose exit code the command has.
# E706 config: OpenMP gives fewer threads than were asked for
With --threads N each operator is split among N threads. Where OpenMP gives fewer, kernels
may leave a part of their result unwritten. Unset OMP_THREAD_LIMIT and
OMP_MAX_ACTIVE_LEVELS; a program that calls Lockstep must not do so from a parallel
region.
# E707 config: ranks compute different results from the same samples
Before a run all ranks compute one step of made-up samples and compare a hash of the
results. The hashes must be equal, or the model would depend on which rank computes which
sample. Usual reasons are processors of several makes, and libraries or variables of the
environment that are not the same on all nodes; or a model of your own that keeps state
between calls, draws from a generator of its own or reads a clock. 'lockstep verify' finds
such a model by the parameters after a few steps.
# E708 config: this process rounds or flushes numbers
Numbers below 1.2e-38 must not be flushed to zero, and results must be rounded to nearest.
Libraries compiled with -ffast-math change that for the whole process when they are loaded.
# E709 config: a variable of the environment decides the bits
It took effect before Lockstep could unset it. Without it, runs are comparable.
# E710 config: the run cannot go on here with the same bits
A step of made-up samples gives other bits than on the nodes that computed the run before.
Resume it there, or accept it with --accept-other-bits. Then the log says so, and later
checkpoints have the bits of these nodes.
# E713 bug: the model ended the process
The model's code, or a library that it uses, called exit(), _exit() or quick_exit(). A
rank that ends so, even with code 0, has not trained: the run is marked as failed. Let the
model throw an exception instead.
# E740 config: a fault of the drill did not end as it should
'lockstep drill' caused a fault in a small training, and a check failed: the exit code, the
named rank and cause, nothing left behind, or the same parameters after a resume. Its page
says which check; docs/drill.md says how each fault should end.
# E741 config: no fault was tried
All faults that 'lockstep drill' was asked for need something that is missing, such as a
second node.
# E742 usage: there is too little time to tune
'lockstep tune' compares trainings in turns, each of some seconds. --minutes must leave
room for at least one setting's, or --knobs and --rounds ask for fewer.
# E743 bug: a setting that should only change speed changed bits
'lockstep tune' compares the parameters of all its trainings. Settings that are free to
change on resume must not change them.)";

struct NamedExit {
    std::string_view name;
    ExitCode code;
};

constexpr auto exits = std::to_array<NamedExit>({
    {"usage", ExitCode::usage},
    {"bad_data", ExitCode::bad_data},
    {"missing_input", ExitCode::missing_input},
    {"service_away", ExitCode::service_away},
    {"bug", ExitCode::bug},
    {"cannot_create", ExitCode::cannot_create},
    {"io", ExitCode::io},
    {"saved_please_requeue", ExitCode::saved_please_requeue},
    {"peer_lost", ExitCode::peer_lost},
    {"permission", ExitCode::permission},
    {"config", ExitCode::config},
    {"do_not_requeue", ExitCode::do_not_requeue},
    {"interrupted", ExitCode::interrupted},
});

constexpr std::string_view mark = "\n# ";  // before each entry

// Removes the first entry from `text`, a part of `page`. An unknown exit does not compile.
constexpr ErrorEntry take_entry(std::string_view& text) {
    const auto take = [&](std::string_view end) {
        const std::string_view part = text.substr(0, text.find(end));
        text.remove_prefix(std::min(text.size(), part.size() + end.size()));
        return part;
    };
    ErrorEntry entry{};
    entry.code = take(" ");
    entry.exit_code = std::ranges::find(exits, take(": "), &NamedExit::name)->code;
    entry.title = take("\n");
    entry.text = take(mark);
    return entry;
}

constexpr std::size_t entry_count() {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = page.find(mark, at)) != page.npos; ++at) ++count;
    return count;
}

constexpr auto catalog = [] {
    std::array<ErrorEntry, entry_count()> entries{};
    std::string_view text = page.substr(mark.size());
    for (ErrorEntry& entry : entries) entry = take_entry(text);
    return entries;
}();

}  // namespace

std::span<const ErrorEntry> error_catalog() {
    return catalog;
}

const ErrorEntry* find_error(std::string_view code) {
    const auto found = std::ranges::find(catalog, code, &ErrorEntry::code);
    return found == catalog.end() ? nullptr : &*found;
}

}  // namespace lockstep
