/* The three tables of CPU kernels. */
#pragma once
#include "src/kernels/cpu/context.h"

/* Static storage; built on the first call, from any thread. */
const fsdp_kernels *fsdp_cpu_table(fsdp_cpu_isa isa);
