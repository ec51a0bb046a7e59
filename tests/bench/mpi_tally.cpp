// SPDX-License-Identifier: Apache-2.0
// Linked by bench_at_scale; preloaded into other programs, where it leaves what it counted of rank
// 0, and the peak of its memory, in the file $LOCKSTEP_TALLY:
//   mpirun -np 64 -x LD_PRELOAD=libbench_mpi_tally.so -x LOCKSTEP_TALLY=FILE lockstep doctor
#include "mpi_tally.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>

#include <mpi.h>
#include <time.h>

namespace lockstep {
namespace {

double thread_cpu_s() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

thread_local MpiTally counted;
thread_local double begin_s = 0;  // of the thread's CPU time
MpiTally at_end;                  // of the thread that ends MPI
int own_rank = 0;

/// For as long as a call of MPI lasts.
class InMpi {
  public:
    explicit InMpi(std::uint64_t bytes = 0) : since_s_(thread_cpu_s()) { counted.bytes += bytes; }
    ~InMpi() { counted.in_mpi_s += thread_cpu_s() - since_s_; }
    InMpi(const InMpi&) = delete;
    InMpi& operator=(const InMpi&) = delete;

  private:
    double since_s_;
};

std::uint64_t size_of(MPI_Datatype type) {
    int bytes = 0;
    PMPI_Type_size(type, &bytes);
    return static_cast<std::uint64_t>(bytes);
}

std::uint64_t bytes_of(int count, MPI_Datatype type) {
    return static_cast<std::uint64_t>(count) * size_of(type);
}

int ranks_of(MPI_Comm comm) {
    int ranks = 0;
    PMPI_Comm_size(comm, &ranks);
    return ranks;
}

bool is_root(MPI_Comm comm, int root) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank == root;
}

/// Of what all ranks give one or all.
std::uint64_t bytes_of_all(const int* counts, MPI_Datatype type, MPI_Comm comm) {
    const std::span each(counts, static_cast<std::size_t>(ranks_of(comm)));
    return std::accumulate(each.begin(), each.end(), std::uint64_t{0}) * size_of(type);
}

std::uint64_t peak_kib() {
    std::uint64_t kib = 0;
    char line[256];
    std::FILE* const status = std::fopen("/proc/self/status", "r");
    while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr)
        if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::strtoull(line + 6, nullptr, 10);
    if (status != nullptr) std::fclose(status);
    return kib;
}

// The kernel's own figure for a child that has ended begins with its parent's.
[[gnu::destructor]] void leave_tally() {
    const char* const path = std::getenv("LOCKSTEP_TALLY");
    if (path == nullptr || own_rank != 0) return;
    std::FILE* const file = std::fopen(path, "w");
    if (file == nullptr) return;
    std::fprintf(file,
                 "{\"own_s\": %.9f, \"in_mpi_s\": %.9f, \"bytes\": %llu, \"peak_mib\": %.3f}\n",
                 at_end.own_s,
                 at_end.in_mpi_s,
                 static_cast<unsigned long long>(at_end.bytes),
                 static_cast<double>(peak_kib()) / 1024);
    std::fclose(file);
}

}  // namespace

MpiTally mpi_tally() {
    MpiTally now = counted;
    now.own_s = thread_cpu_s() - begin_s - now.in_mpi_s;
    return now;
}

}  // namespace lockstep

using namespace lockstep;

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int wanted, int* given) {
    const int outcome = PMPI_Init_thread(argc, argv, wanted, given);
    PMPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    counted = {};
    begin_s = thread_cpu_s();
    return outcome;
}

int MPI_Finalize() {
    at_end = mpi_tally();
    return PMPI_Finalize();
}

int MPI_Barrier(MPI_Comm comm) {
    const InMpi inside;
    return PMPI_Barrier(comm);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    const InMpi inside(bytes_of(count, type));
    return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Gather(const void* from,
               int count,
               MPI_Datatype type,
               void* into,
               int each,
               MPI_Datatype into_type,
               int root,
               MPI_Comm comm) {
    const bool hears = is_root(comm, root);
    const InMpi inside(bytes_of(count, type) * (hears ? std::uint64_t(ranks_of(comm)) : 1));
    return PMPI_Gather(from, count, type, into, each, into_type, root, comm);
}

int MPI_Gatherv(const void* from,
                int count,
                MPI_Datatype type,
                void* into,
                const int* counts,
                const int* offsets,
                MPI_Datatype into_type,
                int root,
                MPI_Comm comm) {
    const bool hears = is_root(comm, root);
    const InMpi inside(hears ? bytes_of_all(counts, into_type, comm) : bytes_of(count, type));
    return PMPI_Gatherv(from, count, type, into, counts, offsets, into_type, root, comm);
}

int MPI_Allgather(const void* from,
                  int count,
                  MPI_Datatype type,
                  void* into,
                  int each,
                  MPI_Datatype into_type,
                  MPI_Comm comm) {
    const InMpi inside(bytes_of(each, into_type) * std::uint64_t(ranks_of(comm)));
    return PMPI_Allgather(from, count, type, into, each, into_type, comm);
}

int MPI_Allgatherv(const void* from,
                   int count,
                   MPI_Datatype type,
                   void* into,
                   const int* counts,
                   const int* offsets,
                   MPI_Datatype into_type,
                   MPI_Comm comm) {
    const InMpi inside(bytes_of_all(counts, into_type, comm));
    return PMPI_Allgatherv(from, count, type, into, counts, offsets, into_type, comm);
}

int MPI_Allreduce(
    const void* from, void* into, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm comm) {
    const InMpi inside(bytes_of(count, type));
    return PMPI_Allreduce(from, into, count, type, operation, comm);
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    const InMpi inside(bytes_of(count, type));
    return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Recv(void* data,
             int count,
             MPI_Datatype type,
             int from,
             int tag,
             MPI_Comm comm,
             MPI_Status* status) {
    const InMpi inside(bytes_of(count, type));
    return PMPI_Recv(data, count, type, from, tag, comm, status);
}

// As colours and keys go round in these: two words of each rank.

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    const InMpi inside(2 * sizeof(int) * std::uint64_t(ranks_of(comm)));
    return PMPI_Comm_split(comm, color, key, made);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    const InMpi inside(2 * sizeof(int) * std::uint64_t(ranks_of(comm)));
    return PMPI_Comm_split_type(comm, type, key, info, made);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
    const InMpi inside;
    return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_free(MPI_Comm* comm) {
    const InMpi inside;
    return PMPI_Comm_free(comm);
}

int MPI_Win_allocate_shared(
    MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* window) {
    const InMpi inside;
    return PMPI_Win_allocate_shared(bytes, unit, info, comm, base, window);
}

int MPI_Win_free(MPI_Win* window) {
    const InMpi inside;
    return PMPI_Win_free(window);
}

}  // extern "C"
