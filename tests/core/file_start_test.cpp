// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/file_start.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_literals;

std::string zip_with(const std::string& name) {
    return "PK\x03\x04"s + std::string(22, '\0') + static_cast<char>(name.size()) +
           std::string(3, '\0') + name + "content";
}

TEST(FileStart, TellsArchivesByTheirFirstFile) {
    EXPECT_EQ(file_kind(zip_with("w.npy")), FileKind::numpy_archive);
    EXPECT_EQ(file_kind(zip_with("resnet/data.pkl")), FileKind::torch_save);
    EXPECT_EQ(file_kind(zip_with("resnet/data/0")), FileKind::torch_script);
    EXPECT_EQ(file_kind(zip_with("readme.txt")), FileKind::zip);
    EXPECT_EQ(file_kind("PK\x03\x04"), FileKind::zip);
}

TEST(FileStart, IsTold) {
    EXPECT_EQ(file_start_text(""), "it is empty");
    EXPECT_EQ(file_start_text("<html>"), "it begins like a web page");
    EXPECT_EQ(file_start_text("\x01\xff"s), "it begins with the bytes 01 ff");
    EXPECT_EQ(file_kind(std::string(8, '\0')), FileKind::zeros);
}

}  // namespace
}  // namespace lockstep
