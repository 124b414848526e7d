/* Atomics. The blocks of a kernel run one after the other, but kernels of several streams do not,
 * so these are real atomics. */
#include "block.h"

using namespace emu;

#define ATOMIC_OPERATION(T, Bits, name, expression)                                                \
    T name(T *p, T v)                                                                              \
    {                                                                                              \
        touch(p, sizeof *p, ATOMIC, __builtin_return_address(0));                                  \
        Bits bits = __atomic_load_n((Bits *)p, __ATOMIC_RELAXED);                                  \
        T old;                                                                                     \
        do                                                                                         \
            old = emu_bits<T>(bits);                                                               \
        while (!__atomic_compare_exchange_n((Bits *)p, &bits, emu_bits<Bits>((T)(expression)),     \
                                            false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));           \
        return old;                                                                                \
    }
#define ATOMIC_OPERATIONS(T, Bits)                                                                 \
    ATOMIC_OPERATION(T, Bits, atomicAdd, old + v)                                                  \
    ATOMIC_OPERATION(T, Bits, atomicExch, v)                                                       \
    ATOMIC_OPERATION(T, Bits, atomicMax, old > v ? old : v)                                        \
    ATOMIC_OPERATION(T, Bits, atomicMin, old < v ? old : v)                                        \
    T atomicCAS(T *p, T expected, T v)                                                             \
    {                                                                                              \
        touch(p, sizeof *p, ATOMIC, __builtin_return_address(0));                                  \
        Bits bits = emu_bits<Bits>(expected);                                                      \
        __atomic_compare_exchange_n((Bits *)p, &bits, emu_bits<Bits>(v), false, __ATOMIC_RELAXED,  \
                                    __ATOMIC_RELAXED);                                             \
        return emu_bits<T>(bits);                                                                  \
    }
ATOMIC_OPERATIONS(int, uint32_t)
ATOMIC_OPERATIONS(unsigned, uint32_t)
ATOMIC_OPERATIONS(unsigned long long, uint64_t)
ATOMIC_OPERATIONS(float, uint32_t)
ATOMIC_OPERATIONS(double, uint64_t)
