// SPDX-License-Identifier: Apache-2.0
#include "small_data.hpp"

#include "program.hpp"

#include <stdexcept>

namespace lockstep::test {
namespace {

void pack(const TempDir& folder, const std::string& name, std::uint64_t count, std::uint64_t seed) {
    const Samples samples = make_samples(count, seed, {.height = 28, .width = 28});
    const fs::path images = folder.file(name + "-images.idx", images_text(samples));
    const fs::path labels = folder.file(name + "-labels.idx", labels_text(samples));
    const ProcessResult result =
        run_lockstep(typed("data pack --images % --labels % --out % --block-rows 32",
                           {images, labels, folder / name}));
    if (result.exit_code != 0) throw std::runtime_error("data pack failed:\n" + result.output);
}

}  // namespace

SmallData::SmallData() {
    pack(folder_, "train", 600, 1);
    pack(folder_, "test", 200, 2);
}

const SmallData& SmallData::get() {
    static const SmallData data;
    return data;
}

fs::path SmallData::shard(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".h5") return entry.path();
    throw std::runtime_error("no shard in " + folder.string());
}

void copy_train_set(const fs::path& folder) {
    fs::create_directories(folder.parent_path());
    fs::copy(SmallData::get().train(), folder, fs::copy_options::recursive);
}

}  // namespace lockstep::test
