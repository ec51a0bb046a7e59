// SPDX-License-Identifier: Apache-2.0
#include "model/known_errors.hpp"

#include "lockstep/core/error.hpp"

#include <c10/util/Exception.h>

namespace lockstep {

std::string reason_of(const std::exception& error) {
    if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
        const std::string text = torch->what_without_backtrace();
        return text.substr(0, text.find('\n'));
    }
    std::string text = error.what();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

void throw_if_known(const std::exception& error) {
    const std::string reason = reason_of(error);
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
        throw Error("E696",
                    "a GPU has no memory left for what the model computes",
                    reason,
                    "use --micro-batches 2 or more, --precision fp16, more ranks or a smaller "
                    "--batch");
    if (reason.find("does not have a deterministic implementation") != reason.npos)
        throw Error("E695",
                    "the model has an operator that may give other bits each time on this device",
                    reason.substr(0, reason.find(',')),
                    "replace it in the model, or train with --device cpu");
    for (const char* library : {"CUDA error", "cuDNN error", "CUBLAS_STATUS"})
        if (reason.find(library) != reason.npos)
            throw Error("E681",
                        "CUDA failed under LibTorch",
                        reason,
                        "nvidia-smi and the kernel's log (dmesg, 'NVRM: Xid') say whether the GPU "
                        "is well; start the same command again to resume");
}

}  // namespace lockstep
