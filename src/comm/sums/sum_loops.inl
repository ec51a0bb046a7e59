// SPDX-License-Identifier: Apache-2.0
// Every sum of gradients between slots ends here; products add leaves in
// train/leaves/product_loops.inl. Vectors run along the elements, never along the inputs: lane i of
// a register adds the i-th element of all inputs, in the order that merges_after says, and no lane
// ever meets another.
//
//                      element  0   1   2   3  | 4   5   6   7  | ...   one tile: 4 vectors
//     input 0                   a   a   a   a  |
//     input 1                   b   b   b   b  |     stack of tiles:   push, push, merge, push ...
//     input 2                   c   c   c   c  |
//     output                   ((a + b) + c)   |     in registers, stored once to every output
//
// So the width of the vectors decides the speed alone. All inputs of a tile are read before an
// output is written, so outputs may be inputs.
//
// What must never happen:
// - The compiler adds in another order: no -ffast-math or -fassociative-math in these files.
// - A function of the standard library is instantiated here. Compiled for AVX-512, its copy could
//   be the one that the linker keeps for the whole program, which then dies on processors without.
//   Hence the builtins and plain pointers.
//
// Tested: comm/sums/sum_kernels_test.cpp runs every instruction set that the processor has
// against a reference, any order, length and alignment; comm/leaf_tree_test.cpp.
//
// Included by sum_loops_*.cpp, each compiled for one instruction set, inside a namespace of its
// own. All but what sum_kernels.hpp declares has internal linkage.

#include "sums/sum_kernels.hpp"
#include "sums/sum_order.hpp"

#include <cstddef>

namespace lockstep::LOCKSTEP_SUM_LOOPS {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t vector_bytes = 32;
#else
constexpr std::size_t vector_bytes = 16;
#endif

/// Four vectors are in flight, so that the loads of one do not wait for the sums of another.
constexpr int vectors_in_tile = 4;

typedef float Vector __attribute__((vector_size(vector_bytes)));
constexpr std::size_t vector_floats = vector_bytes / sizeof(float);

struct Tile {
    static constexpr std::size_t floats = vectors_in_tile * vector_floats;

    Vector vectors[vectors_in_tile];

    static Tile load(const float* from) {
        Tile tile;
        for (int i = 0; i < vectors_in_tile; ++i)
            __builtin_memcpy(&tile.vectors[i], from + i * vector_floats, sizeof(Vector));
        return tile;
    }
    void store(float* to) const {
        for (int i = 0; i < vectors_in_tile; ++i) put(vectors[i], to + i * vector_floats);
    }
    /// By value, or the vectors would go through memory.
    static void put(Vector vector, float* to) { __builtin_memcpy(to, &vector, sizeof vector); }

    Tile operator+(const Tile& right) const {
        Tile sum;
        for (int i = 0; i < vectors_in_tile; ++i) sum.vectors[i] = vectors[i] + right.vectors[i];
        return sum;
    }
};

/// Where tiles come from and go to: all of a buffer but its end in whole tiles.
struct WholeTiles {
    const SumTask& task;

    Tile load(std::size_t input, std::size_t at) const {
        return Tile::load(task.inputs[input] + at);
    }
    void store(const Tile& tile, std::size_t at) const {
        for (std::size_t i = 0; i < task.output_count; ++i) tile.store(task.outputs[i] + at);
    }
};

/// The last `count` floats, which do not fill a tile.
struct PartOfTile {
    const SumTask& task;
    std::size_t count;

    Tile load(std::size_t input, std::size_t at) const {
        float padded[Tile::floats] = {};
        __builtin_memcpy(padded, task.inputs[input] + at, count * sizeof(float));
        return Tile::load(padded);
    }
    void store(const Tile& tile, std::size_t at) const {
        float padded[Tile::floats];
        tile.store(padded);
        for (std::size_t i = 0; i < task.output_count; ++i)
            __builtin_memcpy(task.outputs[i] + at, padded, count * sizeof(float));
    }
};

/// The balanced order of a power of two, all in registers.
template <std::size_t inputs>
struct BalancedSum {
    template <class Tiles>
    static Tile sum(const Tiles& tiles, std::size_t at, std::size_t first = 0) {
        if constexpr (inputs == 1) {
            return tiles.load(first, at);
        } else {
            using Half = BalancedSum<inputs / 2>;
            const Tile left = Half::sum(tiles, at, first);
            return left + Half::sum(tiles, at, first + inputs / 2);
        }
    }
};

/// Any order.
struct SumByStack {
    template <class Tiles>
    [[gnu::always_inline]] static inline Tile sum(const Tiles& tiles, std::size_t at) {
        return summed_in_order<Tile>(tiles.task.merges_after,
                                     tiles.task.input_count,
                                     [&](std::size_t k) { return tiles.load(k, at); });
    }
};

template <class Order>
void sum_tiles(const SumTask& task) {
    const WholeTiles whole{task};
    std::size_t at = 0;
    for (; at + Tile::floats <= task.count; at += Tile::floats)
        whole.store(Order::sum(whole, at), at);
    if (at == task.count) return;
    const PartOfTile part{task, task.count - at};
    part.store(Order::sum(part, at), at);
}

/// Nothing to add. In pieces, so that what one output gets is still in cache for the next.
void copy(const SumTask& task) {
    constexpr std::size_t piece = 4 << 10;
    for (std::size_t at = 0; at < task.count; at += piece) {
        const std::size_t size = task.count - at < piece ? task.count - at : piece;
        for (std::size_t i = 0; i < task.output_count; ++i)
            if (task.outputs[i] != task.inputs[0])
                __builtin_memcpy(task.outputs[i] + at, task.inputs[0] + at, size * sizeof(float));
    }
}

bool is_balanced(const SumTask& task) {
    for (std::size_t k = 0; k < task.input_count; ++k)
        if (task.merges_after[k] != __builtin_ctzll(k + 1)) return false;
    return true;
}

}  // namespace

void sum(const SumTask& task) {
    if (task.input_count == 1) {
        copy(task);
    } else if (task.input_count == 2) {
        sum_tiles<BalancedSum<2>>(task);
    } else if (task.input_count == 4 && is_balanced(task)) {
        sum_tiles<BalancedSum<4>>(task);
    } else if (task.input_count == 8 && is_balanced(task)) {
        sum_tiles<BalancedSum<8>>(task);
    } else {
        sum_tiles<SumByStack>(task);
    }
}

}  // namespace lockstep::LOCKSTEP_SUM_LOOPS
