// SPDX-License-Identifier: Apache-2.0
#include "model/known_errors.hpp"

#include "lockstep/core/error.hpp"

#include <array>

namespace lockstep {
namespace {

const char* place_text(ModelPlace place) {
    constexpr std::array texts{"constructor", "train()", "forward()", "backward pass"};
    return texts.at(static_cast<std::size_t>(place));
}

Error failure(ModelPlace place, const std::string& reason) {
    const std::string where = place_text(place);
    return Error("E250", "the model's " + where + " failed", reason, "fix the model's " + where);
}

}  // namespace

std::string reason_of(const std::exception& error) {
    const auto* const torch = dynamic_cast<const c10::Error*>(&error);
    std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
    // Since 2.15 an exception of TorchScript is LibTorch's own: the reason follows its traceback.
    if (torch != nullptr && !text.starts_with("The following operation failed in the TorchScript"))
        return text.substr(0, text.find('\n'));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

std::string reason_of(const std::exception& error, ModelAuthor author) {
    const bool is_torchs = dynamic_cast<const c10::Error*>(&error) != nullptr;
    const std::string text = error.what();
    const std::string reason = is_torchs || author != ModelAuthor::user_class
                                   ? reason_of(error)
                                   : text.substr(0, text.find('\n'));
    return reason.empty() ? "its exception has no text" : reason;
}

void throw_if_known(const std::exception& error) {
    if (const Error known = as_error(error); known.exit_code() != ExitCode::bug) throw known;
    const std::string reason = reason_of(error);
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
        throw Error("E696",
                    "a GPU has no memory left for what the model computes",
                    reason,
                    "--graph off needs less, with the same bits; or use --micro-batches 2 or more, "
                    "--precision fp16, more ranks or a smaller --batch");
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

void rethrow_of_model(ModelAuthor author, ModelPlace place) {
    try {
        throw;
    } catch (const Error&) {
        throw;
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {
        throw_if_known(error);
        if (author == ModelAuthor::lockstep) throw;
        throw failure(place, reason_of(error, author));
    } catch (...) {
        throw failure(place, "it threw what is no std::exception");
    }
}

}  // namespace lockstep
