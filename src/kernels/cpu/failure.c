/* Records the first failure among the tasks of an operation (fsdp_cpu_failure in product.h). */
#include <stdatomic.h>
#include <stdio.h>

#include "src/kernels/cpu/product.h"

void fsdp_cpu_failure_note(fsdp_cpu_failure *failure, fsdp_status status)
{
    int expected = 0;
    if (status == FSDP_OK || !atomic_compare_exchange_strong(&failure->taken, &expected, 1))
        return;
    snprintf(failure->message, sizeof failure->message, "%s", fsdp_last_error());
    atomic_store(&failure->status, (int)status);
}

bool fsdp_cpu_failure_any(const fsdp_cpu_failure *failure)
{
    return atomic_load_explicit(&failure->taken, memory_order_relaxed) != 0;
}

fsdp_status fsdp_cpu_failure_raise(const fsdp_cpu_failure *failure)
{
    fsdp_status status = (fsdp_status)atomic_load(&failure->status);
    return status == FSDP_OK ? FSDP_OK : fsdp_error(status, "%s", failure->message);
}
