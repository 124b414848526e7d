/* See alloc_testing.h. */
#include "src/base/alloc_testing.h"

static _Thread_local long countdown;

void fsdp_alloc_fail_at(long n)
{
    countdown = n;
}

bool fsdp_alloc_should_fail(void)
{
    return countdown > 0 && --countdown == 0;
}
