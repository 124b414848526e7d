/* Lets ranks compute at a given rate. Tests use this to measure how a run on several hosts overlaps
 * communication with computation; see Note [Hooks for tests] in src/base/alloc_testing.h.
 *
 * If the environment variable FSDP_TEST_FLOPS is set, it is the number of floating-point operations
 * per second at which each rank computes its matrix products. The rank computes a product as usual,
 * and then sleeps for the rest of the time that the product takes at this rate. So more ranks than
 * cores can compute at the same time, as long as the rate is far below that of a core. Operations
 * between two products use the time of the product before them.
 *
 * A rank that has begun a product sleeps before it begins the next product, and before it begins or
 * ends a phase of a shared buffer (src/comm/comm.h). So its peers see each action of the rank at
 * the time at which a slower processor would have done it. If this time has passed already, the
 * rank is late. At the end of the process, a line on stderr gives the total time that the products
 * may take at this rate, and the total time by which ranks were late. */
#pragma once

#ifdef FSDP_TESTING
/* Begin a product of `flops` operations. If an earlier product has not ended yet, first sleep until
 * its end. */
void fsdp_pace_product(double flops);
/* Sleep until the time at which the last product must end. */
void fsdp_pace_settle(void);
#else
static inline void fsdp_pace_product(double flops)
{
    (void)flops;
}
static inline void fsdp_pace_settle(void) {}
#endif
