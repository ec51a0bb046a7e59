// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_reduction.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

using Scalar = std::array<std::byte, 8>;

template <class T>
Scalar scalar_of(T value) {
    Scalar scalar{};
    std::memcpy(scalar.data(), &value, sizeof value);
    return scalar;
}

/// Round to nearest, ties to even.
std::uint16_t bfloat16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

Scalar factor_as(DataType type, double factor) {
    switch (type) {
        case DataType::float32:
            return scalar_of(static_cast<float>(factor));
        case DataType::bfloat16:
            return scalar_of(bfloat16_of(static_cast<float>(factor)));
        case DataType::float64:
            return scalar_of(factor);
        case DataType::int64:
            break;
    }
    expect(false, "integers are summed without a factor");
    return {};
}

}  // namespace

nccl::DataTypeCode nccl_type(DataType type) {
    constexpr std::array codes = {
        nccl::type_float32, nccl::type_bfloat16, nccl::type_float64, nccl::type_int64};
    return codes[static_cast<std::size_t>(type)];
}

NcclGroup::NcclGroup(NcclCommunicator::Inside& inside) : inside_(inside) {
    inside_.handle().call("ncclGroupStart",
                          [&](nccl::Comm&) { return inside_.nccl().group_start(); });
}

NcclGroup::~NcclGroup() {
    if (!is_open_) return;
    try {
        inside_.handle().use([&](nccl::Comm&) { return inside_.nccl().group_end(); });
    } catch (const Error&) {
        return;  // an abort has begun: what the group holds went with the communicator
    }
}

void NcclGroup::close() {
    is_open_ = false;
    inside_.handle().call("ncclGroupEnd", [&](nccl::Comm&) { return inside_.nccl().group_end(); });
}

void NcclGroup::end(const std::string& what) {
    close();
    inside_.settle(what);
}

NcclReductions::~NcclReductions() {
    try {
        for (const auto& [type, op] : made_)
            inside_.handle().use(
                [&](nccl::Comm& comm) { return inside_.nccl().red_op_destroy(op, comm); });
    } catch (const Error&) {
        return;  // an abort has begun: the operators went with the communicator
    }
}

void NcclReductions::prepare(DataType type) {
    if (factor_ == 1.0 || made_.contains(type)) return;
    Scalar scalar = factor_as(type, factor_);
    inside_.guarded([&] {
        inside_.handle().call("ncclRedOpCreatePreMulSum", [&](nccl::Comm& comm) {
            return inside_.nccl().red_op_create_pre_mul_sum(
                &made_[type], scalar.data(), nccl_type(type), nccl::host_scalar, comm);
        });
    });
}

nccl::RedOp NcclReductions::of(DataType type) const {
    const auto found = made_.find(type);
    return found == made_.end() ? nccl::sum : found->second;
}

}  // namespace lockstep
