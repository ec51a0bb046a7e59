// SPDX-License-Identifier: Apache-2.0
// The gradient of the cnn's largest weight, 512 x 3136, over 64 samples as 16 leaves of 4, by turns
// with the product of all samples at once by LibTorch, on one thread: bench_leaves [--rounds N].
// The last line is JSON: milliseconds by round.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"

#include "leaves/leaf_product.hpp"

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <torch/types.h>

namespace {

using namespace lockstep;

constexpr std::int64_t outputs = 512, inputs = 3136, leaves = 16, rows = 4;

RowMatrix matrix(const at::Tensor& tensor) {
    return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.size(1))};
}

/// As autograd does it, into memory that is there.
struct Product {
    at::Tensor gradient = torch::randn({leaves * rows, outputs});
    at::Tensor input = torch::randn({leaves * rows, inputs});
    at::Tensor result = torch::zeros({outputs, inputs});

    void whole() { at::mm_out(result, gradient.t(), input); }

    // Leaf l ends as many subtrees as l + 1 has factors of two.
    void by_leaf() {
        std::vector<std::size_t> ends;
        std::vector<int> merges;
        for (std::size_t leaf = 1; leaf <= leaves; ++leaf) {
            ends.push_back(leaf * rows);
            merges.push_back(__builtin_ctzll(leaf));
        }
        float* const output = result.data_ptr<float>();
        leaf_product(matrix(gradient), matrix(input), ends, merges, {&output, 1});
    }
};

template <class Work>
double milliseconds(Work&& work) {
    const double begin_s = now_s();
    work();
    return 1000 * (now_s() - begin_s);
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    const int rounds =
        words.size() == 2 && words[0] == "--rounds" ? std::stoi(std::string(words[1])) : 50;
    at::set_num_threads(1);
    Product product;
    std::vector<double> whole, by_leaf;
    for (int round = 0; round < rounds; ++round) {
        whole.push_back(milliseconds([&] { product.whole(); }));
        by_leaf.push_back(milliseconds([&] { product.by_leaf(); }));
    }
    std::cout << Json({{"whole", whole}, {"by leaf", by_leaf}}).dump() << "\n";
}
