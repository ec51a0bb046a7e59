// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever text a manifest is, it is refused with an Error or means what it says.
#include "lockstep/core/error.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstdlib>
#include <string>

namespace lockstep {
namespace {

void parse(const std::string& text, ManifestKind kind) {
    Manifest manifest;
    try {
        manifest = parse_manifest(text, "fuzz", kind);
    } catch (const Error& error) {
        if (error.code() == "E700") std::abort();
        return;
    }
    // What was understood is written and understood again.
    const std::string written = manifest_text(manifest);
    const Manifest again = parse_manifest(written, "fuzz", kind);
    manifest.digest = again.digest;
    if (!(manifest == again) || manifest.bytes_per_sample() == 0) std::abort();
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    for (const auto kind : {lockstep::ManifestKind::packed, lockstep::ManifestKind::foreign}) {
        lockstep::parse(text, kind);
        // No fuzzer finds a digest: as if whoever made the file had sealed it.
        lockstep::parse(lockstep::sealed(text), kind);
    }
    return 0;
}
