/* Groups of threads: collectives in closed form, argument checks, failures. */

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "tests/comm/conformance.h"
#include "tests/test.h"

TEST(conformance_in_a_world_of_one)
{
    ASSERT_OK(fsdp_run_ranks(1, comm_conformance, NULL, NULL));
}

TEST(conformance_over_threads)
{
    for (int world_size = 2; world_size <= 5; world_size++)
        ASSERT_OK(fsdp_run_ranks(world_size, comm_conformance, NULL, NULL));
    ASSERT_OK(fsdp_run_ranks(8, comm_conformance, NULL, NULL));
}
