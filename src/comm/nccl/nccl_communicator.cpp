// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_communicator.hpp"

#include "lockstep/core/log.hpp"

#include "nccl/nccl_inside.hpp"

#include <exception>
#include <utility>

namespace lockstep {

NcclCommunicator::NcclCommunicator(std::shared_ptr<GpuRuntime> runtime,
                                   Bootstrap& bootstrap,
                                   const NcclOptions& options)
    : inside_(std::make_unique<Inside>(std::move(runtime), bootstrap, options)) {
    inside_->start();
}

NcclCommunicator::NcclCommunicator(NcclCommunicator&&) noexcept = default;
NcclCommunicator& NcclCommunicator::operator=(NcclCommunicator&&) noexcept = default;

NcclCommunicator::~NcclCommunicator() {
    if (!inside_ || inside_->handle().state() != NcclState::ready) return;
    try {
        // The others do not come to finalize with a rank that is on its way out.
        if (std::uncaught_exceptions() > 0)
            inside_->runtime()->abort_all(inside_->options().abort_limit_s);
        else
            close();
    } catch (const std::exception& error) {
        here(Level::warn, "{}", error.what());
    }
}

void NcclCommunicator::close() {
    inside_->finish();
}

int NcclCommunicator::rank() const {
    return inside_->bootstrap().rank();
}
int NcclCommunicator::size() const {
    return inside_->bootstrap().size();
}
NcclState NcclCommunicator::state() const {
    return inside_->handle().state();
}
const std::vector<StartPhase>& NcclCommunicator::start_phases() const {
    return inside_->phases();
}

}  // namespace lockstep
