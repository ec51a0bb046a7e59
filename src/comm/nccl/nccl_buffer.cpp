// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_buffer.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

/// Memory of ncclMemAlloc and its registration; either may have failed.
class RegisteredMemory {
  public:
    RegisteredMemory(NcclCommunicator::Inside& inside, std::size_t bytes)
        : runtime_(inside.runtime()), inside_(inside) {
        const NcclApi& nccl = runtime_->nccl();
        if (!nccl.can_register() || nccl.mem_alloc(&data_, bytes) != nccl::success) return;
        inside_.handle().use([&](nccl::Comm& comm) {
            is_registered_ = nccl.comm_register(comm, data_, bytes, &handle_) == nccl::success;
        });
    }
    ~RegisteredMemory() {
        if (is_registered_) deregister();
        if (data_ != nullptr && !runtime_->is_wedged()) runtime_->nccl().mem_free(data_);
    }
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;

    void* data() const { return data_; }
    bool is_registered() const { return is_registered_; }

  private:
    void deregister() {
        try {
            inside_.handle().use(
                [&](nccl::Comm& comm) { return runtime_->nccl().comm_deregister(comm, handle_); });
        } catch (const Error&) {
            return;  // an abort has begun: the registration goes with the communicator
        }
    }

    std::shared_ptr<GpuRuntime> runtime_;
    NcclCommunicator::Inside& inside_;
    void *data_ = nullptr, *handle_ = nullptr;
    bool is_registered_ = false;
};

NcclBuffer::NcclBuffer(NcclCommunicator& communicator, std::size_t bytes) {
    NcclCommunicator::Inside& inside = communicator.inside();
    inside.guarded([&] {
        auto registered = std::make_unique<RegisteredMemory>(inside, bytes);
        const auto all = gather_all(inside.bootstrap(),
                                    registered->is_registered() ? "yes" : "no",
                                    inside.options().collective_deadline_s,
                                    "registration of a buffer with NCCL");
        if (std::ranges::count(all, "yes") == inside.bootstrap().size()) {
            registered_ = std::move(registered);
            return;
        }
        registered.reset();
        plain_ = make_memory(inside.runtime(), bytes);
    });
}

NcclBuffer::~NcclBuffer() = default;
NcclBuffer::NcclBuffer(NcclBuffer&&) noexcept = default;
NcclBuffer& NcclBuffer::operator=(NcclBuffer&&) noexcept = default;

void* NcclBuffer::data() const {
    return registered_ ? registered_->data() : plain_.value();
}

}  // namespace lockstep
