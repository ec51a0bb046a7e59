// SPDX-License-Identifier: Apache-2.0
#include "base/mpi_check.hpp"
#include "collectives/back_ends.hpp"
#include "collectives/private_memory.hpp"
#include "collectives/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <mpi.h>

namespace lockstep {
namespace {

void add_brain_floats(void* from, void* into, int* count, MPI_Datatype* /*type*/) {
    constexpr std::array left_to_right = {0, 1};
    const std::array<const void*, 2> both = {from, into};
    const std::array<void*, 1> to = {into};
    sum_into(DataType::bfloat16, left_to_right, both, to, static_cast<std::size_t>(*count));
}

/// MPI knows no bfloat16: to it they are 16 bits with an addition of their own.
class BrainFloatSum {
  public:
    BrainFloatSum() {
        constexpr int commutes = 1;
        check_mpi(MPI_Op_create(add_brain_floats, commutes, &operation_), "MPI_Op_create");
    }
    ~BrainFloatSum() { MPI_Op_free(&operation_); }
    BrainFloatSum(const BrainFloatSum&) = delete;
    BrainFloatSum& operator=(const BrainFloatSum&) = delete;

    MPI_Op handle() const { return operation_; }

  private:
    MPI_Op operation_ = MPI_OP_NULL;
};

MPI_Datatype mpi_type_of(DataType type) {
    switch (type) {
        case DataType::float32:
            return MPI_FLOAT;
        case DataType::bfloat16:
            return MPI_UINT16_T;
        case DataType::float64:
            return MPI_DOUBLE;
        case DataType::int64:
            return MPI_INT64_T;
    }
    return MPI_DATATYPE_NULL;
}

class OpenMpi : public AllReduce {
  public:
    explicit OpenMpi(const Communicator& ranks) : ranks_(ranks.duplicate()) {
        if (ranks_.size() > 1) brain_float_sum_.emplace();
    }

    std::string_view name() const override { return name_of(Algorithm::open_mpi); }
    std::byte* lend(std::size_t bytes) override { return memory_.lend(bytes); }

    void all_reduce(void* data, std::size_t count, DataType type) override {
        constexpr std::size_t largest_message = std::size_t{1} << 30;
        if (ranks_.size() == 1) return;
        const MPI_Op sum = type == DataType::bfloat16 ? brain_float_sum_->handle() : MPI_SUM;
        for (std::size_t done = 0; done < count; done += largest_message) {
            const auto part = static_cast<int>(std::min(count - done, largest_message));
            check_mpi(MPI_Allreduce(MPI_IN_PLACE,
                                    static_cast<std::byte*>(data) + done * size_of(type),
                                    part,
                                    mpi_type_of(type),
                                    sum,
                                    ranks_.handle()),
                      "MPI_Allreduce");
        }
    }

  private:
    const Communicator ranks_;
    PrivateMemory memory_;
    std::optional<BrainFloatSum> brain_float_sum_;  ///< one rank may have no MPI
};

}  // namespace

std::unique_ptr<AllReduce> make_open_mpi_all_reduce(const Communicator& ranks) {
    return std::make_unique<OpenMpi>(ranks);
}

}  // namespace lockstep
