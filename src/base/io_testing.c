/* See io_testing.h. */
#include "src/base/io_testing.h"

#include <errno.h>

static _Thread_local struct {
    fsdp_io_call call;
    long left; /* n: the n-th call from now fails; 0: no call fails */
    int error;
} fault;

void fsdp_io_fail_at(fsdp_io_call call, long n, int error)
{
    fault.call = call;
    fault.left = n;
    fault.error = error;
}

bool fsdp_io_should_fail(fsdp_io_call call)
{
    if (fault.left == 0 || fault.call != call || --fault.left > 0)
        return false;
    errno = fault.error;
    return true;
}
