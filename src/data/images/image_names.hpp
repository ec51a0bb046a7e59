// SPDX-License-Identifier: Apache-2.0
// What a file's ending says of the image in it. Files are chosen by it; how they are decoded is
// told by their bytes.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Whether files with this ending (".png", in lower case) are read; those of libtiff only
/// in a build that has it.
bool is_read_image(std::string_view ending);

/// Whether it is an image's that is not read.
bool is_foreign_image(std::string_view ending);

/// The library that would read it, as its Debian package is called; "" if none would.
std::string_view missing_package(std::string_view ending);

/// "PNG, JPEG, PPM, PGM or TIFF": what is_read_image() is true for.
std::string read_images_text();

}  // namespace lockstep
