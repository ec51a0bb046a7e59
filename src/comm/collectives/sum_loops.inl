// SPDX-License-Identifier: Apache-2.0
// Every sum of this project ends here. Vectors run along the elements, never along the inputs: lane
// i of a register adds the i-th element of all inputs, in the order that merges_after says, and no
// lane ever meets another.
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
// - bfloat16 is rounded between two additions; it is widened when loaded and rounded when stored.
// - A NaN turns into infinity when it is rounded: infinities and NaNs are how a diverged or broken
//   run shows itself.
// - A function of the standard library is instantiated here. Compiled for AVX-512, its copy could
//   be the one that the linker keeps for the whole program, which then dies on processors without.
//   Hence the builtins and plain pointers.
//
// Tested: comm/collectives/sum_kernels_test.cpp runs every instruction set that the processor has
// against a reference, any type, order, length and alignment; comm/leaf_tree_test.cpp.
//
// Included by sum_loops_*.cpp, each compiled for one instruction set, inside a namespace of its
// own. All but what sum_loops.hpp declares has internal linkage.

#include "collectives/sum_loops.hpp"
#include "collectives/sum_order.hpp"

#include <cstddef>
#include <cstdint>

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

/// float, double, and int64 as the unsigned type, whose overflow is defined.
template <class T>
struct Number {
    typedef T Vector __attribute__((vector_size(vector_bytes)));
    using Stored = Vector;
    static constexpr std::size_t element_bytes = sizeof(T);

    static Vector load(const std::byte* from) {
        Vector vector;
        __builtin_memcpy(&vector, from, sizeof vector);
        return vector;
    }
    static Stored rounded(Vector vector) { return vector; }
};

/// Stored in 16 bits, added as float.
struct BrainFloat {
    typedef float Vector __attribute__((vector_size(vector_bytes)));
    typedef std::uint32_t Bits __attribute__((vector_size(vector_bytes)));
    typedef std::uint16_t Stored __attribute__((vector_size(vector_bytes / 2)));
    static constexpr std::size_t element_bytes = 2;

    static Vector load(const std::byte* from) {
        Stored stored;
        __builtin_memcpy(&stored, from, sizeof stored);
        return reinterpret_cast<Vector>(__builtin_convertvector(stored, Bits) << 16);
    }
    /// To nearest, ties to even. Adding half a unit would carry some NaNs to infinity or beyond:
    /// those become the one quiet NaN.
    static Stored rounded(Vector vector) {
        const Bits bits = reinterpret_cast<Bits>(vector);
        const Bits nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const Bits is_nan = reinterpret_cast<Bits>((bits & 0x7fffffff) > 0x7f800000);
        return __builtin_convertvector((nearest & ~is_nan) | (is_nan & 0x7fc0), Stored);
    }
};

template <class Element>
struct Tile {
    using Vector = typename Element::Vector;
    using Stored = typename Element::Stored;
    static constexpr std::size_t bytes = vectors_in_tile * sizeof(Stored);

    /// As it is in memory.
    struct Rounded {
        Stored vectors[vectors_in_tile];

        void store(std::byte* to) const {
            for (int i = 0; i < vectors_in_tile; ++i) put(vectors[i], to + i * sizeof(Stored));
        }
        /// By value, or the vectors would go through memory.
        static void put(Stored vector, std::byte* to) {
            __builtin_memcpy(to, &vector, sizeof vector);
        }
    };

    Vector vectors[vectors_in_tile];

    static Tile load(const std::byte* from) {
        Tile tile;
        for (int i = 0; i < vectors_in_tile; ++i)
            tile.vectors[i] = Element::load(from + i * sizeof(Stored));
        return tile;
    }
    /// Written out for the same reason.
    Rounded rounded() const {
        return {{Element::rounded(vectors[0]),
                 Element::rounded(vectors[1]),
                 Element::rounded(vectors[2]),
                 Element::rounded(vectors[3])}};
    }
    Tile operator+(const Tile& right) const {
        Tile sum;
        for (int i = 0; i < vectors_in_tile; ++i) sum.vectors[i] = vectors[i] + right.vectors[i];
        return sum;
    }
};

/// Where tiles come from and go to: all of a buffer but its end in whole tiles.
struct WholeTiles {
    const SumTask& task;

    template <class Element>
    Tile<Element> load(std::size_t input, std::size_t at) const {
        return Tile<Element>::load(static_cast<const std::byte*>(task.inputs[input]) + at);
    }
    template <class Element>
    void store(const Tile<Element>& tile, std::size_t at) const {
        const auto rounded = tile.rounded();
        for (std::size_t i = 0; i < task.output_count; ++i)
            rounded.store(static_cast<std::byte*>(task.outputs[i]) + at);
    }
};

/// The last `bytes`, which do not fill a tile.
struct PartOfTile {
    const SumTask& task;
    std::size_t bytes;

    template <class Element>
    Tile<Element> load(std::size_t input, std::size_t at) const {
        std::byte padded[Tile<Element>::bytes] = {};
        __builtin_memcpy(padded, static_cast<const std::byte*>(task.inputs[input]) + at, bytes);
        return Tile<Element>::load(padded);
    }
    template <class Element>
    void store(const Tile<Element>& tile, std::size_t at) const {
        std::byte padded[Tile<Element>::bytes];
        tile.rounded().store(padded);
        for (std::size_t i = 0; i < task.output_count; ++i)
            __builtin_memcpy(static_cast<std::byte*>(task.outputs[i]) + at, padded, bytes);
    }
};

/// The balanced order of a power of two, all in registers.
template <std::size_t inputs>
struct BalancedSum {
    template <class Element, class Tiles>
    static Tile<Element> sum(const Tiles& tiles, std::size_t at, std::size_t first = 0) {
        if constexpr (inputs == 1) {
            return tiles.template load<Element>(first, at);
        } else {
            using Half = BalancedSum<inputs / 2>;
            const auto left = Half::template sum<Element>(tiles, at, first);
            return left + Half::template sum<Element>(tiles, at, first + inputs / 2);
        }
    }
};

/// Any order.
struct SumByStack {
    template <class Element, class Tiles>
    [[gnu::always_inline]] static inline Tile<Element> sum(const Tiles& tiles, std::size_t at) {
        return summed_in_order<Tile<Element>>(
            tiles.task.merges_after, tiles.task.input_count, [&](std::size_t k) {
                return tiles.template load<Element>(k, at);
            });
    }
};

template <class Element, class Order>
void sum_tiles(const SumTask& task) {
    const std::size_t bytes = task.count * Element::element_bytes;
    const WholeTiles whole{task};
    std::size_t at = 0;
    for (; at + Tile<Element>::bytes <= bytes; at += Tile<Element>::bytes)
        whole.store(Order::template sum<Element>(whole, at), at);
    if (at == bytes) return;
    const PartOfTile part{task, bytes - at};
    part.store(Order::template sum<Element>(part, at), at);
}

/// Nothing to add. In pieces, so that what one output gets is still in cache for the next.
void copy(const SumTask& task, std::size_t element_bytes) {
    constexpr std::size_t piece = 16 << 10;
    const std::size_t bytes = task.count * element_bytes;
    for (std::size_t at = 0; at < bytes; at += piece) {
        const std::size_t size = bytes - at < piece ? bytes - at : piece;
        for (std::size_t i = 0; i < task.output_count; ++i)
            if (task.outputs[i] != task.inputs[0])
                __builtin_memcpy(static_cast<std::byte*>(task.outputs[i]) + at,
                                 static_cast<const std::byte*>(task.inputs[0]) + at,
                                 size);
    }
}

bool is_balanced(const SumTask& task) {
    for (std::size_t k = 0; k < task.input_count; ++k)
        if (task.merges_after[k] != __builtin_ctzll(k + 1)) return false;
    return true;
}

template <class Element>
void sum_elements(const SumTask& task) {
    if (task.input_count == 1) {
        copy(task, Element::element_bytes);
    } else if (task.input_count == 2) {
        sum_tiles<Element, BalancedSum<2>>(task);
    } else if (task.input_count == 4 && is_balanced(task)) {
        sum_tiles<Element, BalancedSum<4>>(task);
    } else if (task.input_count == 8 && is_balanced(task)) {
        sum_tiles<Element, BalancedSum<8>>(task);
    } else {
        sum_tiles<Element, SumByStack>(task);
    }
}

}  // namespace

void sum(const SumTask& task) {
    switch (task.type) {
        case DataType::float32:
            return sum_elements<Number<float>>(task);
        case DataType::bfloat16:
            return sum_elements<BrainFloat>(task);
        case DataType::float64:
            return sum_elements<Number<double>>(task);
        case DataType::int64:
            return sum_elements<Number<std::uint64_t>>(task);
    }
}

void swap_through(const SwapTask& task) {
    using Bytes = Tile<Number<std::uint8_t>>;
    std::size_t at = 0;
    for (; at + Bytes::bytes <= task.bytes; at += Bytes::bytes) {
        const Bytes in = Bytes::load(task.in + at);
        Bytes::load(task.box + at).rounded().store(task.out + at);
        in.rounded().store(task.box + at);
    }
    std::byte rest[Bytes::bytes];
    const std::size_t left = task.bytes - at;
    __builtin_memcpy(rest, task.in + at, left);
    __builtin_memcpy(task.out + at, task.box + at, left);
    __builtin_memcpy(task.box + at, rest, left);
}

}  // namespace lockstep::LOCKSTEP_SUM_LOOPS
