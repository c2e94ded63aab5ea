"""The two languages that kernels are written in, as data: OpenCL C 1.2 and CUDA C."""

from dataclasses import dataclass

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import LoopKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one language says what both can do.

    Attributes
    ----------
    types
        Names of the scalar types; `ScalarType.INDEX` has the type of a small index, float16 that of
        its bits, as not every device computes with it.
    wide_index
        The type of an index beyond 32 bits.
    unsigned
        The unsigned types of 32 and 64 bits.
    kernel, function
        What stands in front of a kernel, with a place for `launch_bounds`, and of a function.
    pointer
        A buffer of the device, to be filled in with the element type.
    shared, shared_pointer
        What stands in front of a tensor in shared memory, and of what a pointer to it points to.
    global_pointer
        What stands in front of what a pointer to a buffer points to.
    barrier
        The statement at which the threads of a block meet.
    axes
        The index of a thread along each axis of a launch.
    launch_bounds
        What tells the compiler how many threads a block has.
    packed
        The types that move so many bytes at once.
    float_suffix
        What the names of functions of float32 end with.
    long_suffix
        What a 64-bit constant ends with.
    prelude
        Text in front of all kernels.
    """

    types: dict[ScalarType, str]
    wide_index: str
    unsigned: dict[ScalarType, str]
    kernel: str
    function: str
    pointer: str
    shared: str
    shared_pointer: str
    global_pointer: str
    barrier: str
    axes: dict[LoopKind, str]
    launch_bounds: str
    packed: dict[int, str]
    float_suffix: str
    long_suffix: str
    prelude: str


_OPENCL_PRELUDE = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define TW_INFINITY INFINITY
#define TW_NAN NAN
#define TW_ALIGNED __attribute__((aligned(16)))
#ifdef TW_EXACT_DIVISION
#define TW_DIVIDE_float(a, b) ((a) / (b))
#define TW_SQRT_float(a) sqrt(a)
#else
#define TW_DIVIDE_float(a, b) ((float)((double)(a) / (double)(b)))
#define TW_SQRT_float(a) ((float)sqrt((double)(a)))
#endif
inline float tw_from_half(ushort bits) { return vload_half(0, (const half *)&bits); }
inline ushort tw_to_half(float value)
{
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return bits;
}
#define TW_FETCH(packed, to, from, valid) \\
    (*(__local packed *)(to) = (valid) ? *(__global const packed *)(from) : (packed)(0))
#define TW_FETCHED
#define TW_ARRIVE
#if defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define tw_dot4(a, b, sum) ((sum) + dot_4x8packed_ss_int((uint)(a), (uint)(b)))
#else
inline int tw_dot4(int a, int b, int sum)
{
    char4 x = as_char4(a), y = as_char4(b);
    return sum + x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2 + x.s3 * y.s3;
}
#endif
"""

#: What only a GPU has; tests put the processor's own in its place.
CUDA_MACHINE = """\
typedef long long tw_long;
typedef unsigned long long tw_ulong;
#define TW_INFINITY __int_as_float(0x7f800000)
#define TW_NAN __int_as_float(0x7fffffff)
#define TW_ALIGNED __align__(16)
#define TW_DIVIDE_float(a, b) __fdiv_rn(a, b)
#define TW_SQRT_float(a) __fsqrt_rn(a)
static __device__ __forceinline__ float tw_from_half(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static __device__ __forceinline__ unsigned short tw_to_half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
static __device__ __forceinline__ int tw_dot4(int a, int b, int sum) { return __dp4a(a, b, sum); }
#if __CUDA_ARCH__ >= 800
// Copies without waiting; where they are not valid, zeros (PTX ISA, cp.async).
static __device__ __forceinline__ void tw_fetch(uint4 *to, const uint4 *from, bool valid)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(place), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
template <typename T>
static __device__ __forceinline__ void tw_fetch(T *to, const T *from, bool valid)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 :: "r"(place), "l"(from), "r"(valid ? (int)sizeof(T) : 0), "n"(sizeof(T))
                 : "memory");
}
#define TW_FETCHED asm volatile("cp.async.commit_group;" ::: "memory");
#define TW_ARRIVE asm volatile("cp.async.wait_group 1;" ::: "memory");
#else
template <typename T>
static __device__ __forceinline__ void tw_fetch(T *to, const T *from, bool valid)
{
    T nothing = {};
    *to = valid ? *from : nothing;
}
#define TW_FETCHED
#define TW_ARRIVE
#endif
#define TW_FETCH(packed, to, from, valid) tw_fetch((packed *)(to), (const packed *)(from), valid)
#if __CUDA_ARCH__ >= 800
static __device__ __forceinline__ void tw_mma_m16n8k32(int *d, const int *a, const int *b)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void tw_mma_m16n8k16(float *d, const int *a, const int *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#elif __CUDA_ARCH__ >= 750
static __device__ __forceinline__ void tw_mma_m8n8k16(int *d, int a, int b)
{
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1]) : "r"(a), "r"(b));
}
static __device__ __forceinline__ void tw_mma_m16n8k8(float *d, const int *a, int b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}
#endif
"""

#: Tiles of a warp in terms of the instructions above. Each lane has words of rows ``lane / 4`` and
#: eight more, first of one half of the depth, then of the other: operands of mma.m16n8k32 (int8)
#: and mma.m16n8k16 (float16) have the same bytes in the same lanes, and those of Turing's smaller
#: instructions are parts of them (PTX ISA, matrix fragments).
_CUDA_TILES = """\
struct tw_operands { int a[4], b[2]; };
template <typename T>
static __device__ __forceinline__ tw_operands tw_load(const T *left, int left_step, const T *right,
                                                      int right_step)
{
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    const int *upper = (const int *)(left + row * left_step);
    const int *lower = (const int *)(left + (row + 8) * left_step);
    const int *column = (const int *)(right + row * right_step);
    return {{upper[part], lower[part], upper[part + 4], lower[part + 4]},
            {column[part], column[part + 4]}};
}
#if __CUDA_ARCH__ >= 750
static __device__ __forceinline__ void tw_matrix_multiply(int *d, const signed char *left,
                                                          int left_step, const signed char *right,
                                                          int right_step)
{
    const tw_operands x = tw_load(left, left_step, right, right_step);
#if __CUDA_ARCH__ >= 800
    tw_mma_m16n8k32(d, x.a, x.b);
#else
    for (int half = 0; half < 2; ++half) {
        tw_mma_m8n8k16(d, x.a[2 * half], x.b[half]);
        tw_mma_m8n8k16(d + 2, x.a[2 * half + 1], x.b[half]);
    }
#endif
}
static __device__ __forceinline__ void tw_matrix_multiply(float *d, const unsigned short *left,
                                                          int left_step,
                                                          const unsigned short *right,
                                                          int right_step)
{
    const tw_operands x = tw_load(left, left_step, right, right_step);
#if __CUDA_ARCH__ >= 800
    tw_mma_m16n8k16(d, x.a, x.b);
#else
    tw_mma_m16n8k8(d, x.a, x.b[0]);
    tw_mma_m16n8k8(d, x.a + 2, x.b[1]);
#endif
}
#endif
template <typename T>
static __device__ __forceinline__ void tw_store_fragment(T *tile, int step, const T *d)
{
    const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
    tile[row * step + column] = d[0];
    tile[row * step + column + 1] = d[1];
    tile[(row + 8) * step + column] = d[2];
    tile[(row + 8) * step + column + 1] = d[3];
}
"""

OPENCL = Dialect(
    types={
        ScalarType.BOOL: "uchar",
        ScalarType.INT8: "char",
        ScalarType.UINT8: "uchar",
        ScalarType.INT16: "short",
        ScalarType.INT32: "int",
        ScalarType.INT64: "long",
        ScalarType.FLOAT16: "ushort",
        ScalarType.FLOAT32: "float",
        ScalarType.FLOAT64: "double",
        ScalarType.INDEX: "int",
    },
    wide_index="long",
    unsigned={ScalarType.INT32: "uint", ScalarType.INT64: "ulong"},
    kernel="__kernel {bounds}void",
    function="inline",
    pointer="__global {} *restrict ",
    shared="__local",
    shared_pointer="__local ",
    global_pointer="__global ",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    axes={
        LoopKind.BLOCK_X: "(int)get_group_id(0)",
        LoopKind.BLOCK_Y: "(int)get_group_id(1)",
        LoopKind.BLOCK_Z: "(int)get_group_id(2)",
        LoopKind.THREAD_X: "(int)get_local_id(0)",
        LoopKind.THREAD_Y: "(int)get_local_id(1)",
        LoopKind.THREAD_Z: "(int)get_local_id(2)",
    },
    launch_bounds="__attribute__((reqd_work_group_size({x}, {y}, {z}))) ",
    packed={2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"},
    float_suffix="",
    long_suffix="L",
    prelude=_OPENCL_PRELUDE,
)

CUDA = Dialect(
    types={
        ScalarType.BOOL: "unsigned char",
        ScalarType.INT8: "signed char",
        ScalarType.UINT8: "unsigned char",
        ScalarType.INT16: "short",
        ScalarType.INT32: "int",
        ScalarType.INT64: "tw_long",
        ScalarType.FLOAT16: "unsigned short",
        ScalarType.FLOAT32: "float",
        ScalarType.FLOAT64: "double",
        ScalarType.INDEX: "int",
    },
    wide_index="tw_long",
    unsigned={ScalarType.INT32: "unsigned", ScalarType.INT64: "tw_ulong"},
    kernel='extern "C" __global__ {bounds}void',
    function="static __device__ __forceinline__",
    pointer="{} *__restrict__ ",
    shared="__shared__",
    shared_pointer="",
    global_pointer="",
    barrier="__syncthreads();",
    axes={
        LoopKind.BLOCK_X: "(int)blockIdx.x",
        LoopKind.BLOCK_Y: "(int)blockIdx.y",
        LoopKind.BLOCK_Z: "(int)blockIdx.z",
        LoopKind.THREAD_X: "(int)threadIdx.x",
        LoopKind.THREAD_Y: "(int)threadIdx.y",
        LoopKind.THREAD_Z: "(int)threadIdx.z",
    },
    launch_bounds="__launch_bounds__({threads}, 1) ",
    packed={2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"},
    float_suffix="f",
    long_suffix="LL",
    prelude=CUDA_MACHINE + _CUDA_TILES,
)
