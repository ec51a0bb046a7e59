// SPDX-License-Identifier: Apache-2.0
// What a data set of a file that others wrote is as rows of a field: one description, by which it
// is streamed and packed, so that both say the same of the same file.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include "contents.hpp"
#include "file_facts.hpp"
#include "format/widening.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Who reads rows: streaming has the decoders of this program alone, packing libhdf5, too, in
/// pieces that memory holds.
enum class Road { stream, pack };

/// The reason why a data set has no rows of a field. The remedy comes later, because that needs all
/// files and fields.
struct Unfit {
    Obstacle obstacle;
    std::string why;
    std::string code = "";  ///< "": the road's usual one
};

/// The rows of a data set as those of a field.
struct RowForm {
    ElementType type = ElementType::u8;  ///< what elements become
    std::vector<std::int64_t> shape;     ///< of a row; none for texts
    bool is_text = false;     ///< names of classes, which are numbered when they are read
    bool is_encoded = false;  ///< images as the bytes of their files
    Widening widening{};      ///< of elements that are not stored as `type`, if known
    std::optional<Unpacking> unpacking = {};  ///< of numbers of ":cf"
};

/// Describes what `facts` of `file` are as `field`. `is_class`: numbers become classes, i64.
/// Throws Unfit; E235 for ":cf" of a data set that cannot be unpacked.
RowForm form_of(const DatasetFacts& facts,
                const FieldMapping& field,
                const fs::path& file,
                Road road,
                bool is_class);

/// Checks that rows of field number `field` are in `file` what they are in the file `first`.
/// Errors: E208.
void check_like(const RowForm& form,
                const RowForm& first_form,
                const AskedFiles& asked,
                std::size_t field,
                const fs::path& file,
                const fs::path& first);

/// Returns E235: field number `field`, of the layout "label", has rows that are no labels.
Error no_label(const AskedFiles& asked, std::size_t field, const RowForm& form);

/// What enumerations call classes, in all files.
class NamedClasses {
  public:
    /// Errors: E208 if `file` calls a class otherwise than a file before it.
    void add(const DatasetFacts& facts, const FieldMapping& field, const fs::path& file);

    /// The names of at least `classes` classes by their numbers, "2" for one without; none if no
    /// class has one.
    std::vector<std::string> names(std::size_t classes = 0) const;

  private:
    std::map<std::int64_t, std::string> names_;
    fs::path named_by_;  // the first file with names
};

/// Whether a data set has attributes of the CF conventions that change its numbers, which no class
/// numbers have, and `field` has no ":cf".
bool needs_unpacking(const DatasetFacts& facts, const FieldMapping& field);

/// What to warn of where a data set has attributes of the CF conventions and `field` has no ":cf";
/// "" if they change nothing, and of class numbers.
std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field);

}  // namespace lockstep
