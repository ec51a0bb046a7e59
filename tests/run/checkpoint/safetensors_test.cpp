// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"

#include "lockstep/core/error.hpp"

#include "support/temp_dir.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

struct Written {
    test::TempDir folder;
    fs::path path = folder.path() / "a.safetensors";
    std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};

    Written() {
        SafetensorsEntry entries[] = {{.name = "w", .shape = {2, 3}, .values = first},
                                      {.name = "b[0:1]", .shape = {1}, .values = second}};
        write_safetensors(path, entries);
    }
};

// An independent reading of the format: length, JSON, data.
TEST(Safetensors, HoldsWhatTheFormatSays) {
    const Written written;
    const std::string bytes = read_file(written.path);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    EXPECT_EQ((8 + length) % 64, 0U);
    const Json header = parse_json(bytes.substr(8, length), "header");
    EXPECT_EQ(header["w"]["dtype"], "F32");
    EXPECT_EQ(header["w"]["shape"], Json({2, 3}));
    EXPECT_EQ(header["w"]["data_offsets"], Json({0, 24}));
    EXPECT_EQ(header["b[0:1]"]["data_offsets"], Json({24, 28}));
    EXPECT_EQ(bytes.size(), 8 + length + 28);
    EXPECT_EQ(std::memcmp(bytes.data() + 8 + length, written.first.data(), 24), 0);
    EXPECT_EQ(std::memcmp(bytes.data() + 8 + length + 24, written.second.data(), 4), 0);
}

TEST(Safetensors, RefusesToReplaceAFile) {
    const Written written;
    SafetensorsEntry entry{.name = "w", .shape = {1}, .values = written.second};
    EXPECT_THROW(write_safetensors(written.path, std::span(&entry, 1)), Error);
}

}  // namespace
}  // namespace lockstep
