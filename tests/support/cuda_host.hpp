// CUDA C on the processor, for tests: the threads of a block take turns, from barrier to barrier.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Axes { int x, y, z; };
static Axes blockIdx, threadIdx;

typedef long long tw_long;
typedef unsigned long long tw_ulong;
#define TW_INFINITY __builtin_inff()
#define TW_NAN __builtin_nanf("")
#define TW_ALIGNED __align__(16)
#define TW_DIVIDE_float(a, b) ((a) / (b))
#define TW_SQRT_float(a) sqrtf(a)

static inline float tw_from_half(unsigned short bits)
{
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
}
static inline unsigned short tw_to_half(float value)
{
    _Float16 half = (_Float16)value;
    unsigned short bits;
    memcpy(&bits, &half, 2);
    return bits;
}

static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static std::vector<std::vector<char>> stacks;
static std::vector<char> finished;
static std::vector<Axes> places;
static size_t current;
static std::function<void()> work;

static void __syncthreads() { swapcontext(&threads[current], &scheduler); }

// Copies arrive as late as they may: when their thread waits for them.
struct Copy { void *to; const void *from; size_t size; bool valid; };
static std::vector<std::vector<std::vector<Copy>>> fetches;
template <typename T>
static void tw_fetch(T *to, const T *from, bool valid)
{
    fetches[current].back().push_back({to, from, sizeof(T), valid});
}
static void tw_arrive(size_t pending)
{
    auto &groups = fetches[current];
    while (groups.size() > pending + 1) {
        for (const Copy &copy : groups.front())
            copy.valid ? (void)memcpy(copy.to, copy.from, copy.size) : (void)memset(copy.to, 0, copy.size);
        groups.erase(groups.begin());
    }
}
#define TW_FETCH(packed, to, from, valid) tw_fetch((packed *)(to), (const packed *)(from), valid)
#define TW_FETCHED fetches[current].emplace_back();
#define TW_ARRIVE tw_arrive(1);

static inline int tw_dot4(int a, int b, int sum)
{
    for (int i = 0; i < 4; ++i)
        sum += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return sum;
}

// Matrix instructions as the PTX ISA lays operands out over the lanes of a warp: each lane publishes
// what it holds, then each computes the results that it owns.
struct Held { int a[4], b[2]; };
static Held published[64][32];

static inline void element(int word, int index, long long &value) { value = (signed char)(word >> (8 * index)); }
static inline void element(int word, int index, double &value) { value = tw_from_half((unsigned short)(word >> (16 * index))); }

// Rows in steps of 8: `RowParts` words of the left operand belong to one part of the depth, of which
// there are `DepthParts`, each 4 words long.
template <typename D, typename Wide, int PerWord, int RowParts, int DepthParts>
static void multiply(D *d, const int *a, const int *b)
{
    const int warp = threadIdx.y + 8 * threadIdx.z, lane = threadIdx.x;
    for (int i = 0; i < RowParts * DepthParts; ++i) published[warp][lane].a[i] = a[i];
    for (int i = 0; i < DepthParts; ++i) published[warp][lane].b[i] = b[i];
    __syncthreads();
    for (int r = 0; r < 2 * RowParts; ++r) {
        const int row = lane / 4 + 8 * (r / 2), column = lane % 4 * 2 + r % 2;
        Wide sum = 0;
        for (int word = 0; word < 4 * DepthParts; ++word) {
            const Held &left = published[warp][row % 8 * 4 + word % 4];
            const Held &right = published[warp][column * 4 + word % 4];
            for (int i = 0; i < PerWord; ++i) {
                Wide x, y;
                element(left.a[row / 8 + RowParts * (word / 4)], i, x);
                element(right.b[word / 4], i, y);
                sum += x * y;
            }
        }
        d[r] = (D)(d[r] + sum);
    }
    __syncthreads();
}

#if __CUDA_ARCH__ >= 800
static void tw_mma_m16n8k32(int *d, const int *a, const int *b) { multiply<int, long long, 4, 2, 2>(d, a, b); }
static void tw_mma_m16n8k16(float *d, const int *a, const int *b) { multiply<float, double, 2, 2, 2>(d, a, b); }
#else
static void tw_mma_m8n8k16(int *d, int a, int b) { multiply<int, long long, 4, 1, 1>(d, &a, &b); }
static void tw_mma_m16n8k8(float *d, const int *a, int b) { multiply<float, double, 2, 2, 1>(d, a, &b); }
#endif

static void begin()
{
    work();
    finished[current] = 1;
    swapcontext(&threads[current], &scheduler);
}

static void launch(const int *grid, const int *block, std::function<void()> kernel)
{
    const size_t count = (size_t)block[0] * block[1] * block[2], stack_bytes = 1 << 16;
    work = kernel;
    stacks.resize(count);
    places.clear();
    for (int z = 0; z < block[2]; ++z)
        for (int y = 0; y < block[1]; ++y)
            for (int x = 0; x < block[0]; ++x)
                places.push_back({x, y, z});
    for (auto &stack : stacks) stack.resize(stack_bytes);
    for (int z = 0; z < grid[2]; ++z)
        for (int y = 0; y < grid[1]; ++y)
            for (int x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                threads.assign(count, {});
                finished.assign(count, 0);
                fetches.assign(count, std::vector<std::vector<Copy>>(1));
                for (size_t i = 0; i < count; ++i) {
                    getcontext(&threads[i]);
                    threads[i].uc_stack.ss_sp = stacks[i].data();
                    threads[i].uc_stack.ss_size = stack_bytes;
                    makecontext(&threads[i], begin, 0);
                }
                for (size_t left = count; left;)
                    // From the last to the first, so that nothing relies on their order.
                    for (size_t i = count; i-- > 0;)
                        if (!finished[i]) {
                            current = i;
                            threadIdx = places[i];
                            swapcontext(&scheduler, &threads[i]);
                            left -= finished[i];
                        }
            }
}
