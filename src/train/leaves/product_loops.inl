// SPDX-License-Identifier: Apache-2.0
// Gradients of dense weights, of many small leaves at once. A leaf of four rows has too few of them
// to hide what it costs to write a matrix as large as the weights, read it and add it to the next
// leaf's: here a tile of it never leaves registers and the first cache until all leaves are added.
//
//     rows of all leaves             a tile of the output
//          k  left  right            +----------------+   fused multiply-adds
//     leaf 0  0  . .   . . . .       | sum over k of  |   in the order of k from 0,
//             1  . .   . . . .  -->  | left x right   |   in registers; then push, and
//     leaf 1  2  . .   . . . .       +----------------+   merge as merges_after says:
//             3  . .   . . . .                            a stack of tiles
//
// Vectors run along the columns of `right`: lane j adds column j's products, and no lane ever meets
// another. So the width of the vectors decides the speed alone.
//
// What must never happen:
// - A product is rounded before it is added: fused multiply-adds everywhere, the library's where
//   the processor has none.
// - The compiler adds in another order: no -ffast-math or -fassociative-math in these files.
// - A function of the standard library is instantiated here; see comm/sums/sum_loops.inl.
//
// Tested: train/leaves/leaf_product_test.cpp runs every instruction set that the processor has
// against a reference.
//
// Included by product_loops_*.cpp, each compiled for one instruction set, inside a namespace of its
// own. All but what product_loops.hpp declares has internal linkage.

#include "leaves/product_loops.hpp"

#include <cstddef>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace lockstep::LOCKSTEP_PRODUCT_LOOPS {
namespace {

#if defined(__AVX512F__)
typedef __m512 Vector;
constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_vectors = 4;
inline Vector spread(float value) {
    return _mm512_set1_ps(value);
}
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    return _mm512_fmadd_ps(a, b, sum);
}
#elif defined(__AVX2__)
typedef __m256 Vector;
constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_vectors = 2;
inline Vector spread(float value) {
    return _mm256_set1_ps(value);
}
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    return _mm256_fmadd_ps(a, b, sum);
}
#elif defined(__aarch64__)
typedef float32x4_t Vector;
constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_vectors = 4;
inline Vector spread(float value) {
    return vdupq_n_f32(value);
}
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    return vfmaq_f32(sum, a, b);
}
#else
typedef float Vector __attribute__((vector_size(16)));
constexpr std::size_t tile_rows = 2;
constexpr std::size_t tile_vectors = 2;
inline Vector spread(float value) {
    return Vector{value, value, value, value};
}
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
    return sum;
}
#endif

constexpr std::size_t lanes = sizeof(Vector) / sizeof(float);
constexpr std::size_t tile_columns = tile_vectors * lanes;

inline Vector load(const float* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
}

inline void store(float* to, Vector vector) {
    __builtin_memcpy(to, &vector, sizeof vector);
}

struct alignas(64) Tile {
    float values[tile_rows][tile_columns];
};

inline std::size_t rows_of(const ProductTask& task) {
    return task.leaf_ends[task.leaves - 1];
}

inline std::size_t smaller(std::size_t a, std::size_t b) {
    return a < b ? a : b;
}

// Columns past the last are zero.
void copy_columns(const float* from,
                  std::size_t stride,
                  std::size_t columns,
                  std::size_t width,
                  std::size_t rows,
                  float* to) {
    for (std::size_t k = 0; k < rows; ++k) {
        for (std::size_t i = 0; i < columns; ++i) to[k * width + i] = from[k * stride + i];
        for (std::size_t i = columns; i < width; ++i) to[k * width + i] = 0;
    }
}

void pack_left(const ProductTask& task, float* packed) {
    const std::size_t rows = rows_of(task);
    for (std::size_t begin = 0; begin < task.left_columns; begin += tile_rows)
        copy_columns(task.left + begin,
                     task.left_stride,
                     smaller(tile_rows, task.left_columns - begin),
                     tile_rows,
                     rows,
                     packed + begin * rows);
}

// Pushes the sum over rows [begin, end) and merges it with `merges` entries below.
inline Tile* add_leaf(const float* left,
                      const float* panel,
                      std::size_t begin,
                      std::size_t end,
                      int merges,
                      Tile* top) {
    Vector sums[tile_rows][tile_vectors];
    for (std::size_t i = 0; i < tile_rows; ++i)
        for (std::size_t j = 0; j < tile_vectors; ++j) sums[i][j] = spread(0);
    for (std::size_t k = begin; k < end; ++k) {
        Vector right[tile_vectors];
        for (std::size_t j = 0; j < tile_vectors; ++j)
            right[j] = load(panel + k * tile_columns + j * lanes);
        for (std::size_t i = 0; i < tile_rows; ++i) {
            const Vector factor = spread(left[k * tile_rows + i]);
            for (std::size_t j = 0; j < tile_vectors; ++j)
                sums[i][j] = multiply_add(factor, right[j], sums[i][j]);
        }
    }
    for (; merges > 0; --merges) {
        --top;
        for (std::size_t i = 0; i < tile_rows; ++i)
            for (std::size_t j = 0; j < tile_vectors; ++j)
                sums[i][j] = load(top->values[i] + j * lanes) + sums[i][j];
    }
    for (std::size_t i = 0; i < tile_rows; ++i)
        for (std::size_t j = 0; j < tile_vectors; ++j)
            store(top->values[i] + j * lanes, sums[i][j]);
    return top + 1;
}

// A sum of zeros is 0, never -0 by underflow: that would say that there is no gradient.
void end_sums(Tile& tile) {
    for (std::size_t i = 0; i < tile_rows; ++i)
        for (std::size_t j = 0; j < tile_vectors; ++j) {
            float* const sums = tile.values[i] + j * lanes;
            store(sums, load(sums) + spread(0));
        }
}

void write_tile(
    const ProductTask& task, const Tile& tile, float* output, std::size_t row, std::size_t column) {
    const std::size_t rows = smaller(tile_rows, task.left_columns - row);
    const std::size_t bytes = smaller(tile_columns, task.right_columns - column) * sizeof(float);
    for (std::size_t i = 0; i < rows; ++i)
        __builtin_memcpy(output + (row + i) * task.right_columns + column, tile.values[i], bytes);
}

void multiply(const ProductTask& task, const float* packed, float* panel, std::size_t begin) {
    const std::size_t rows = rows_of(task);
    copy_columns(task.right + begin,
                 task.right_stride,
                 smaller(tile_columns, task.right_columns - begin),
                 tile_columns,
                 rows,
                 panel);
    Tile stack[deepest_product];
    for (std::size_t row = 0; row < task.left_columns; row += tile_rows) {
        Tile* top = stack;
        std::size_t first = 0;
        for (std::size_t leaf = 0; leaf < task.leaves; ++leaf) {
            const std::size_t end = task.leaf_ends[leaf];
            top = add_leaf(packed + row * rows, panel, first, end, task.merges_after[leaf], top);
            first = end;
        }
        for (std::size_t i = 0; i < task.output_count; ++i) {
            end_sums(stack[i]);
            write_tile(task, stack[i], task.outputs[i], row, begin);
        }
    }
}

}  // namespace

const ProductLoop product_loop{LOCKSTEP_PRODUCT_NAME, tile_rows, tile_columns, pack_left, multiply};

}  // namespace lockstep::LOCKSTEP_PRODUCT_LOOPS
