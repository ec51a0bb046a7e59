// SPDX-License-Identifier: Apache-2.0
#include "option_groups.hpp"

#include "lockstep/data/foreign.hpp"

#include <iterator>

#include <fmt/format.h>

namespace lockstep {

Option json_option(bool& target, const std::string& form) {
    return flag_option("json", target, fmt::format("print {}, for programs", form));
}

ProgressSink progress_sink(bool is_json) {
    return is_json ? ProgressSink::beside_output() : ProgressSink::log_sink();
}

Option incarnation_option(std::int64_t& target, const std::string& which) {
    return whole_option("incarnation", target, 0, 1'000'000'000, which);
}

std::vector<Option> rank_options(int& np, bool& oversubscribe, int least) {
    return {whole_option(
                "np", np, least, 65536, "outside mpirun and srun: start N ranks on this machine"),
            flag_option("oversubscribe", oversubscribe, "allow more ranks than cores")};
}

Option threads_option(int& target) {
    return whole_option("threads", target, 0, 1024, "threads of each rank; 0: one per core");
}

std::vector<Option> foreign_options(std::string& fields,
                                    bool& follows_links,
                                    const std::string& unset) {
    return {field_option(
                "field", fields, "field in HDF5 files that others wrote, as for train" + unset),
            links_option(follows_links)};
}

std::vector<Option> data_set_options(PackOptions& pack) {
    std::vector<Choice<Codec>> codecs;
    for (const Codec each : {Codec::none, Codec::deflate, Codec::lz4, Codec::zstd})
        codecs.emplace_back(codec_name(each), each);
    return {
        path_option("out", "DIR", pack.output, "new folder of the data set"),
        text_option("name", "NAME", pack.name, "name of the shards; unset: the name of DIR"),
        choice_option("codec", pack.codec, codecs, "compression of the blocks"),
        whole_option("level", pack.level, 0, 22, "compression level; 0: the codec's default"),
        whole_option("shards", pack.shards, 0, 100'000, "number of files; 0: about 512 MiB each")};
}

std::vector<Option> joined(std::vector<Option> options, std::vector<Option> more) {
    options.insert(
        options.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    return options;
}

}  // namespace lockstep
